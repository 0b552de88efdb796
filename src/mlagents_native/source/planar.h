// What the Python side hands to the planar engine. Each struct has its twin of the same name in
// `mlagents_sim/native_planar.py`; all members are 8 bytes wide. Arrays belong to Python and stay
// where they are. Letters in shapes: N areas, B bodies of an area, P pairs, S supports.

#pragma once

#include <cstdint>

struct Bodies {
    int64_t n_areas, n_bodies, n_pairs, has_walls, is_falling;
    double wall_friction;
    double *position, *velocity, *heading, *half, *reach;  // (2, B, N)
    double *kept, *above, *climb, *grip, *fall, *pressed;  // (B, N)
    double *low, *high;                                    // (2, B, N)
    uint8_t *is_solid, *touching;                          // (P, N)
    uint8_t *touching_walls;                               // (2 sides, 2 axes, B, N)
    uint8_t *busy;                                         // (N,) scratch
    const int64_t *pairs;                                  // (P, 2)
    const double *shares;                                  // (P, 2)
    const double *friction;                                // (P,)
};

// A round room: a piece of wall, and the object of the nearest slot, beside the first body.
struct Ring {
    int64_t wall, item, n_slots;
    double wall_m, item_m, far_m;  // distances from the middle
    const double *slots;           // (2, slots) unit vectors
    const int64_t *items;          // (slots, N), below 0 for none
    int64_t *near;                 // (N,) result
};

// Vertical motion of the first body; see `mlagents_sim/standing.py`.
struct Standing {
    int64_t n_supports, n_zones, loose, carrier;  // loose: the support that is the body `carrier`
    double half, gain;
    double push_m_s, air_push, jump_height_m, jump_steps, jump_speed_per_m, jump_change_m_s, hold;
    double *height, *climb, *fall, *jump_to, *jump_left;  // (N,)
    double *tops;                                         // (S, N)
    double *boxes_at, *box_halves;                        // (2, S + zones, N)
    uint8_t *is_cleared, *feet_over, *center_over, *on;   // (S, N)
    uint8_t *is_over_zone;                                // (zones, N)
    uint8_t *stood, *is_braked;                           // (N,)
    const uint8_t *wants_to_jump;                         // (N,)
    const int64_t *solid_pairs;                           // (S,) pair that a cleared support parts
};

struct Motion {
    Bodies *bodies;
    Ring *ring;          // or null
    Standing *standing;  // or null
    int64_t pushes_first;
    const double *forward, *right, *sine, *cosine;  // (N,)
    const double *static_grip, *dynamic_grip;       // (B, N), or null
    const uint8_t *watched_pairs;                   // (P,)
    const uint8_t *watched_walls;                   // (2, 2, B)
    const uint8_t *watched_bodies;                  // (B,) for leaving the bounds
    double middle[2], extent[2];                    // bounds: middle and half lengths
};
