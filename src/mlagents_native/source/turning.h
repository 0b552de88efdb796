// What the Python side hands over about boxes that turn. Each struct has its twin of the same name
// in `mlagents_sim/native_planar.py`; all members are 8 bytes wide. Letters in shapes: N areas, B
// boxes of an area, P pairs, M boxes that push themselves, the last of an area.

#pragma once

#include <cstdint>

struct TurningBoxes {
    int64_t n_areas, n_boxes, n_pairs;
    double friction;
    double *position, *velocity, *heading;  // (2, B, N)
    double *spin;                           // (B, N)
    const uint8_t *is_solid;                // (B, N)
    const double *floor;                    // (B, N) speed that one friction anchor takes at most
    const double *half;                     // (2, B)
    const double *radius, *kept, *spin_kept;  // (B,)
    const double *turns;                      // (B,) mass divided by the moment of inertia
    const double *lightness, *turning;        // (B + 1,) one by mass and by that moment
    const double *walls;                      // (4,) distances from the middle
    const int64_t *pairs;                     // (2, P)
    const double *reach;                      // (P,)
};

struct Pushers {
    TurningBoxes *boxes;
    int64_t n_members, n_watched;
    double line;                                    // z of the goal
    const double *forward, *right, *sine, *cosine;  // (M, N)
    uint8_t *arrived;                               // (watched, N)
};

// A straight thing around an area: the direction toward it, the distance of its face from the
// middle, its thickness, and how far it extends to either side.
struct Band {
    double x, z, at, thickness, end;
    int64_t tag;
};

// Grids ahead of the boxes that push themselves; the boxes are square.
struct BoxGrid {
    const TurningBoxes *boxes;
    int64_t n_members, n_cells, n_tags, n_bands;
    double cell_m, ahead_m;
    const int8_t *tags;  // (B,)
    const Band *bands;
};
