// What grids show of boxes that turn and of bands around them: `mlagents_sim/box_grid.py`, which
// explains what is computed and is the reference. The same operations follow each other here.
#include <algorithm>
#include <cmath>

#include "cells.h"
#include "exports.h"
#include "turning.h"
#include "unfused.h"

namespace {

// Middle and heading of an agent's grid.
struct Eye {
    double x, z, heading_x, heading_z;
};

void mark_boxes(const BoxGrid &grid, const Eye &eye, int64_t area, int64_t own, Cells &cells) {
    const TurningBoxes &boxes = *grid.boxes;
    const int64_t n = boxes.n_areas, axis = boxes.n_boxes * n;
    const double reach_m = grid.n_cells * grid.cell_m / 2.0;
    for (int64_t box = 0; box < boxes.n_boxes; ++box) {
        const int64_t at = box * n + area;
        if (box == own || !boxes.is_solid[at]) continue;
        const double apart_x = boxes.position[at] - eye.x, apart_z = boxes.position[axis + at] - eye.z;
        const double right = apart_x * eye.heading_z - apart_z * eye.heading_x;
        const double ahead = apart_x * eye.heading_x + apart_z * eye.heading_z;
        const double half = boxes.half[box], most = reach_m + std::sqrt(2.0) * half;
        if (!(std::fabs(right) < most && std::fabs(ahead) < most)) continue;
        const double its_x = boxes.heading[at], its_z = boxes.heading[axis + at];
        const double to_x = eye.x - boxes.position[at], to_z = eye.z - boxes.position[axis + at];
        const double beyond_x = std::max(std::fabs(to_x * its_z - to_z * its_x) - half, 0.0);
        const double beyond_z = std::max(std::fabs(to_x * its_x + to_z * its_z) - half, 0.0);
        const double distance = std::sqrt(beyond_x * beyond_x + beyond_z * beyond_z);
        mark_square(cells, reach_m, right, ahead, its_x * eye.heading_z - its_z * eye.heading_x,
                    its_x * eye.heading_x + its_z * eye.heading_z, half, distance, grid.tags[box]);
    }
}

void mark_band(const BoxGrid &grid, const Eye &eye, const Band &band, Cells &cells) {
    const double away = band.at - (band.x * eye.x + band.z * eye.z);
    const double nearest = std::max(std::max(away, -away - band.thickness), 0.0);
    const auto is_before_the_end = [&](double right, double ahead) {
        const double x = eye.x + (eye.heading_x * ahead + eye.heading_z * right);
        const double z = eye.z + (eye.heading_z * ahead - eye.heading_x * right);
        return std::fabs(z * band.x - x * band.z) < band.end;
    };
    mark_wall(cells, grid.n_cells * grid.cell_m / 2.0,
              band.x * eye.heading_z - band.z * eye.heading_x,
              band.x * eye.heading_x + band.z * eye.heading_z, away, band.thickness, nearest,
              band.tag, is_before_the_end);
}

}  // namespace

NATIVE_EXPORT int box_grid_version() { return 1; }

// Writes what n agents see, (n, tags, cells, cells). `agents` are indices, or null for the first n.
NATIVE_EXPORT void box_grid_see(const BoxGrid *grid, const int64_t *agents, int64_t n, float *seen) {
    const TurningBoxes &boxes = *grid->boxes;
    const int64_t axis = boxes.n_boxes * boxes.n_areas;
    Cells cells;
    begin(cells, grid->n_cells, grid->cell_m);
    for (int64_t row = 0; row < n; ++row) {
        const int64_t agent = agents ? agents[row] : row, area = agent / grid->n_members;
        const int64_t own = boxes.n_boxes - grid->n_members + agent % grid->n_members;
        const int64_t at = own * boxes.n_areas + area;
        const double x = boxes.heading[at], z = boxes.heading[axis + at];
        const Eye eye = {boxes.position[at] + grid->ahead_m * x,
                         boxes.position[axis + at] + grid->ahead_m * z, x, z};
        mark_boxes(*grid, eye, area, own, cells);
        for (int64_t band = 0; band < grid->n_bands; ++band)
            mark_band(*grid, eye, grid->bands[band], cells);
        write(cells, grid->n_tags, seen);
        seen += grid->n_tags * grid->n_cells * grid->n_cells;
    }
}
