// Grid observations of Food Collector. The reference is `GridSensor` in `mlagents_sim/sensors.py`,
// and `examples/food_collector.py`.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "approach.h"
#include "exports.h"
#include "sight.h"

namespace {

constexpr int64_t MOST_CELLS = 64;  // along an edge

// Objects in the cells of one agent's grid. The nearest object in a cell is observed.
struct Cells {
    int64_t n, n_covered;
    double cell_m;
    double distance[MOST_CELLS * MOST_CELLS];
    int16_t covered[MOST_CELLS * MOST_CELLS];
    int8_t tag[MOST_CELLS * MOST_CELLS];

    void mark(int64_t at, double its_distance, int64_t its_tag) {
        if (tag[at] < 0)
            covered[n_covered++] = static_cast<int16_t>(at);
        else if (!(its_distance <= distance[at]))
            return;
        distance[at] = its_distance;
        tag[at] = static_cast<int8_t>(its_tag);
    }

    double middle(double cell) const { return (cell - (n - 1) / 2.0) * cell_m; }
};

// Cells along one axis that something could cover: the first, the number, and their offsets.
struct Span {
    int64_t first, end;

    Span(const Cells &cells, double place, double reach, double reach_m) {
        const double lowest = std::floor((place - reach + reach_m) / cells.cell_m);
        const double width = std::ceil(2.0 * reach / cells.cell_m) + 1.0;
        first = static_cast<int64_t>(std::max(lowest, 0.0));
        end = static_cast<int64_t>(std::min(lowest + width, static_cast<double>(cells.n)));
    }
};

void mark_disc(Cells &cells, double reach_m, double right, double ahead, double radius,
               double distance, int64_t tag) {
    const Span columns(cells, right, radius, reach_m), rows(cells, ahead, radius, reach_m);
    for (int64_t column = columns.first; column < columns.end; ++column) {
        const double across = std::max(
            std::fabs(cells.middle(static_cast<double>(column)) - right) - cells.cell_m / 2.0, 0.0);
        for (int64_t row = rows.first; row < rows.end; ++row) {
            const double along = std::max(
                std::fabs(cells.middle(static_cast<double>(row)) - ahead) - cells.cell_m / 2.0, 0.0);
            if (across * across + along * along < radius * radius)
                cells.mark((cells.n - 1 - column) * cells.n + row, distance, tag);
        }
    }
}

void mark_square(Cells &cells, double reach_m, double right, double ahead, double sine,
                 double cosine, double half, double distance, int64_t tag) {
    const double spread = std::fabs(sine) + std::fabs(cosine), extent = half * spread;
    const double most = extent + cells.cell_m / 2.0, limit = half + cells.cell_m / 2.0 * spread;
    const Span columns(cells, right, extent, reach_m), rows(cells, ahead, extent, reach_m);
    for (int64_t column = columns.first; column < columns.end; ++column) {
        const double across = cells.middle(static_cast<double>(column)) - right;
        for (int64_t row = rows.first; row < rows.end; ++row) {
            const double along = cells.middle(static_cast<double>(row)) - ahead;
            if (std::fabs(across) < most && std::fabs(along) < most &&
                std::fabs(across * cosine - along * sine) < limit &&
                std::fabs(across * sine + along * cosine) < limit)
                cells.mark((cells.n - 1 - column) * cells.n + row, distance, tag);
        }
    }
}

void mark_wall(Cells &cells, double reach_m, double normal_x, double normal_z, double distance,
               double thickness, int64_t tag) {
    const double spread = std::fabs(normal_x) + std::fabs(normal_z);
    if (!(distance < reach_m * spread)) return;
    const double to_middle = distance + thickness / 2.0;
    const double reach = (thickness + spread * cells.cell_m) / 2.0;
    for (int64_t column = 0; column < cells.n; ++column) {
        const double across = normal_x * -cells.middle(static_cast<double>(column)) - to_middle;
        // Rows that the wall may cover, and one more on either side.
        double first = 0.0, end = static_cast<double>(cells.n);
        if (std::fabs(normal_z) > 1e-9) {
            const double one = (reach - across) / normal_z, other = (-reach - across) / normal_z;
            const double middle = (cells.n - 1) / 2.0;
            first = std::max(first, std::floor(std::min(one, other) / cells.cell_m + middle) - 1.0);
            end = std::min(end, std::ceil(std::max(one, other) / cells.cell_m + middle) + 2.0);
        }
        for (double row = first; row < end; row += 1.0)
            if (std::fabs(across + normal_z * cells.middle(row)) < reach)
                cells.mark(column * cells.n + static_cast<int64_t>(row), distance, tag);
    }
}

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
        const double apart_x = discs.centre[place] - bodies.position[at];
        const double apart_z = discs.centre[discs.count * n + place] - bodies.position[axis + at];
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
                  grid.wall_thickness_m, grid.wall_tag);
}

}  // namespace

// Writes the observations of n agents, (n, tags, cells, cells). `agents` are indices, or null for
// the first n.
NATIVE_EXPORT void planar_grid(const Grid *grid, const int64_t *agents, int64_t n, float *seen) {
    const int64_t n_members = grid->bodies->n_bodies, n_areas = grid->bodies->n_areas;
    const int64_t n_cells = grid->n_cells * grid->n_cells;
    Cells cells;
    cells.n = grid->n_cells;
    cells.cell_m = grid->cell_m;
    cells.n_covered = 0;
    std::memset(cells.tag, -1, sizeof cells.tag);
    for (int64_t row = 0; row < n; ++row, seen += grid->n_tags * n_cells) {
        const int64_t agent = agents ? agents[row] : row;
        const int64_t area = agent / n_members, at = agent % n_members * n_areas + area;
        mark_discs(*grid, area, at, cells);
        mark_agents(*grid, area, at, cells);
        mark_walls(*grid, at, cells);
        std::memset(seen, 0, sizeof(float) * grid->n_tags * n_cells);
        for (int64_t k = 0; k < cells.n_covered; ++k) {
            const int64_t cell = cells.covered[k];
            seen[cells.tag[cell] * n_cells + cell] = 1.0f;
            cells.tag[cell] = -1;
        }
        cells.n_covered = 0;
    }
}
