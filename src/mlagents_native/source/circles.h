// What the Python side hands over about discs. Each struct has its twin of the same name in
// `mlagents_sim/native_planar.py`; all members are 8 bytes wide. Letters in shapes: N areas, C
// discs of an area, P pairs, W walls, M players.

#pragma once

#include <cstdint>

struct Circles {
    int64_t n_areas, n_discs, n_pairs, n_walls;
    double floor_friction, friction;
    double *position, *velocity;  // (2, C, N)
    double *spin;                 // (3, C, N): about x, z and the axis that points up
    const double *fall;           // (C, N) downward speed that gravity adds, below 0
    const double *radius, *lightness, *rolls, *bounce;           // (C + 1,), 0 for what never moves
    const double *kept, *arm, *floor_part, *floor_spin, *rise;  // (C,)
    const int64_t *pairs;                                       // (2, P)
    const double *reach;                                        // (P,)
    uint8_t *touching;                                          // (P, N)
    double *normal;                                             // (2, P, N)
    const double *wall_center, *wall_half, *wall_heading;       // (2, W)
    double clear[2];
};

struct Field {
    Circles *discs;
    int64_t n_players;                                         // the ball is the next disc
    double kick_m_s, goal_at_m, goal_half_m;
    double *heading;                                           // (2, M, N)
    const double *forward, *right, *sine, *cosine;             // (M, N)
    const uint8_t *kicks;                                      // (M, N)
    const int64_t *at_ball;                                    // (M,) pairs of players and the ball
    double *kick;                                              // (2, N)
    int64_t *age;                                              // (N,)
    uint8_t *touched;                                          // (M, N)
    int64_t *touches;                                          // (M, N)
};

// Rays of players. What they meet: the ball, the goals on the left and on the right, walls, and
// players; K boxes, of which those of the goals come first.
struct FieldView {
    const Field *field;
    int64_t n_rays, n_tags, n_boxes, n_goal_boxes;
    double length, radius, player_m, ball_m;  // the last two: how near a ray passes what it meets
    double end_m, side_m;                     // distances at which rays meet the faces of a field
    const double *directions;                 // (2, R), right and ahead
    const int8_t *tags;                       // (M, 4 + M), below 0 for what is not seen
    const double *center, *half, *heading;    // (2, K)
    const int64_t *targets;                   // (K,)
};
