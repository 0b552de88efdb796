// Data that `examples/food_floors.py` passes to the native library. The struct must match the
// structure of the same name in `mlagents_sim/native_planar.py`; all members are 8 bytes wide.
// Letters in shapes: N areas, M agents of an area, F pieces of food.

#pragma once

#include <cstdint>

#include "planar.h"

struct Forage {
    Bodies *bodies;
    int64_t n_foods, frozen_steps, n_eaten;
    double walls_m, food_radius_m, touch_m, bump, laser_m, laser_radius_m;
    double push_m_s, push_shooting_m_s, kept_shooting, fast_m2_s2, kept_fast;
    double *food;                                    // (2, F, N)
    double *touch;                                   // (M, N)
    const double *right, *ahead, *sine, *cosine;     // (M, N)
    double *lost;                                    // (M F N, 2) scratch
    int64_t *falling;                                // (F, N)
    int64_t *frozen;                                 // (M, N)
    int64_t *eaten;                                  // (M F N, 3) areas, agents and pieces
    uint8_t *is_shooting;                            // (M, N)
    const uint8_t *shoots;                           // (M, N)
};
