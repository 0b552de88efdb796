// Data that Python passes to the sensors. Each struct must match the structure of the same name in
// `mlagents_sim/native_planar.py`; all members are 8 bytes wide. Letters in shapes: N areas, M
// agents of an area, B bodies, R rays.

#pragma once

#include <cstdint>

#include "planar.h"

// A box in every area. The body's heading applies only if `is_turned`.
struct SeenBox {
    int64_t body;                           // which it is, or below 0
    int64_t is_turned;                      // whether its heading counts
    double center[2], half[2], heading[2];  // of a box that is not a body
    double radius;                          // of the rays there
    int64_t tag;                            // if there are no tags by area
    const int8_t *tags;                     // (N,), below 0 for a box that is not seen, or null
    const double *low, *high;           // (N,) heights of the edges, or null
};

struct SeenDiscs {
    int64_t count;
    const double *center;   // (2, count, N)
    const int64_t *hidden;  // (count, N), 0 for those that can be seen
    const int8_t *tags;     // (count,)
    double radius, height_m;
};

struct Rays {
    const Bodies *bodies;
    int64_t n_members, n_rays, n_tags, n_boxes, has_room, has_flight;
    double length, radius;
    const double *directions;                                    // (2, R), right and ahead
    double room_low[2], room_high[2], room_radius, room_edge_m;  // no edge: NaN
    int64_t room_tag;
    const SeenBox *boxes;
    const SeenDiscs *discs;  // or null
    double unit_half_m;      // half length of an agent of scale 1, or 0 for rays of one size
    const double *height;    // (N,) heights of the agents, or null
    double start_m, slope;   // of a flight, relative to that height
};

// Grids of agents. All bodies are agents.
struct Grid {
    const Bodies *bodies;
    const SeenDiscs *discs;
    int64_t n_cells, n_tags, wall_tag;
    double cell_m, half_height_m, walls_m, wall_thickness_m;
    const int8_t *agent_tags;  // (M, N)
};

struct Stack {
    int64_t n_agents, n_before, frame_bytes, start;
    uint8_t *ring;  // (n_before, N, frame)
};
