// Distances at which moving spheres touch boxes. The reference is `mlagents_sim/rays.py`.

#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

constexpr double INF = std::numeric_limits<double>::infinity();

inline double inverse(double component) { return 1.0 / (component + std::copysign(1e-30, component)); }

inline double radius_at_edge(double radius, double height) {
    const double above = std::min(std::max(height, 0.0), radius);
    return std::sqrt(radius * radius - above * above);
}

// Motion of a sphere toward a box along one ray, relative to the box's center, in its axes.
struct Approach {
    double offset[2], half[2], direction[2], middle[2], steepness[2];
};

// Returns the distance to the box, infinite for a miss.
inline double enter_box(const Approach &box, double radius) {
    double travel = -INF, end = INF;
    for (int d = 0; d < 2; ++d) {
        const double span = (box.half[d] + radius) * box.steepness[d];
        travel = std::max(travel, box.middle[d] - span);
        end = std::min(end, box.middle[d] + span);
    }
    if (!(travel <= end)) return INF;
    const double start = std::max(travel, 0.0);
    const double x = box.offset[0] + box.direction[0] * start;
    const double z = box.offset[1] + box.direction[1] * start;
    const double beyond_x = std::fabs(x) - box.half[0], beyond_z = std::fabs(z) - box.half[1];
    if (!(beyond_x > 0.0 && beyond_z > 0.0)) return travel >= 0.0 ? travel : INF;
    const double corner_x = std::copysign(beyond_x, x), corner_z = std::copysign(beyond_z, z);
    const double approach = -(corner_x * box.direction[0] + corner_z * box.direction[1]);
    double square = approach * approach - (corner_x * corner_x + corner_z * corner_z);
    square += radius * radius;
    const double to_arc = approach - std::sqrt(std::max(square, 0.0));
    return square >= 0.0 && to_arc >= 0.0 ? start + to_arc : INF;
}
