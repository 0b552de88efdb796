// Grid observations of Food Collector. The reference is `GridSensor` in `mlagents_sim/sensors.py`,
// and `examples/food_collector.py`.

#include <algorithm>
#include <cmath>

#include "approach.h"
#include "cells.h"
#include "exports.h"
#include "sight.h"

namespace {

void mark_discs(const Grid &grid, int64_t area, int64_t at, Cells &cells) {
    const Bodies &bodies = *grid.bodies;
    const SeenDiscs &discs = *grid.discs;
    const int64_t n = bodies.n_areas, axis = bodies.n_bodies * n;
    const double x = bodies.heading[at], z = bodies.heading[axis + at];
    const double below = std::fabs(bodies.half[at] + bodies.above[at] - discs.height_m);
    const double radius = radius_at_edge(discs.radius, below - grid.half_height_m);
    const double reach_m = grid.n_cells * grid.cell_m / 2.0, most = reach_m + radius;
    if (!(radius > 0.0)) return;
    for (int64_t disc = 0; disc < discs.count; ++disc) {
        const int64_t place = disc * n + area;
        const double apart_x = discs.center[place] - bodies.position[at];
        const double apart_z = discs.center[discs.count * n + place] - bodies.position[axis + at];
        const double right = apart_x * z - apart_z * x, ahead = apart_x * x + apart_z * z;
        if (!(std::fabs(right) < most && std::fabs(ahead) < most) || discs.hidden[place]) continue;
        const double distance =
            std::sqrt(right * right + ahead * ahead + below * below) - discs.radius;
        mark_disc(cells, reach_m, right, ahead, radius, distance, discs.tags[disc]);
    }
}

void mark_agents(const Grid &grid, int64_t area, int64_t at, Cells &cells) {
    const Bodies &bodies = *grid.bodies;
    const int64_t n = bodies.n_areas, axis = bodies.n_bodies * n;
    const double x = bodies.heading[at], z = bodies.heading[axis + at];
    const double reach_m = grid.n_cells * grid.cell_m / 2.0;
    for (int64_t other = area; other < bodies.n_bodies * n; other += n) {
        if (other == at) continue;
        const double apart_x = bodies.position[other] - bodies.position[at];
        const double apart_z = bodies.position[axis + other] - bodies.position[axis + at];
        const double right = apart_x * z - apart_z * x, ahead = apart_x * x + apart_z * z;
        const double half = bodies.half[other], most = reach_m + std::sqrt(2.0) * half;
        if (!(std::fabs(right) < most && std::fabs(ahead) < most)) continue;
        const double its_x = bodies.heading[other], its_z = bodies.heading[axis + other];
        const double seen_x = -apart_x * its_z - -apart_z * its_x;
        const double seen_z = -apart_x * its_x + -apart_z * its_z;
        const double beyond_x = std::max(std::fabs(seen_x) - half, 0.0);
        const double beyond_z = std::max(std::fabs(seen_z) - half, 0.0);
        const double distance = std::sqrt(beyond_x * beyond_x + beyond_z * beyond_z);
        mark_square(cells, reach_m, right, ahead, its_x * z - its_z * x, its_x * x + its_z * z,
                    half, distance, grid.agent_tags[other]);
    }
}

void mark_walls(const Grid &grid, int64_t at, Cells &cells) {
    const Bodies &bodies = *grid.bodies;
    const int64_t axis = bodies.n_bodies * bodies.n_areas;
    const double x = bodies.heading[at], z = bodies.heading[axis + at];
    const double place_x = bodies.position[at], place_z = bodies.position[axis + at];
    const double reach_m = grid.n_cells * grid.cell_m / 2.0;
    const double distances[4] = {grid.walls_m + place_x, grid.walls_m - place_x,
                                 grid.walls_m + place_z, grid.walls_m - place_z};
    const double normals_x[4] = {-z, z, x, -x}, normals_z[4] = {-x, x, -z, z};
    for (int side = 0; side < 4; ++side)
        mark_wall(cells, reach_m, normals_x[side], normals_z[side], distances[side],
                  grid.wall_thickness_m, distances[side], grid.wall_tag,
                  [](double, double) { return true; });
}

}  // namespace

// Writes the observations of n agents, (n, tags, cells, cells). `agents` are indices, or null for
// the first n.
NATIVE_EXPORT void planar_grid(const Grid *grid, const int64_t *agents, int64_t n, float *seen) {
    const int64_t n_members = grid->bodies->n_bodies, n_areas = grid->bodies->n_areas;
    const int64_t n_cells = grid->n_cells * grid->n_cells;
    Cells cells;
    begin(cells, grid->n_cells, grid->cell_m);
    for (int64_t row = 0; row < n; ++row, seen += grid->n_tags * n_cells) {
        const int64_t agent = agents ? agents[row] : row;
        const int64_t area = agent / n_members, at = agent % n_members * n_areas + area;
        mark_discs(*grid, area, at, cells);
        mark_agents(*grid, area, at, cells);
        mark_walls(*grid, at, cells);
        write(cells, grid->n_tags, seen);
    }
}
