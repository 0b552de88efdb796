// Cells of the grids that agents carry: `GridSensor` of `mlagents_sim/sensors.py`, which explains
// what is computed and is the reference.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

constexpr int64_t MOST_CELLS = 64;  // along an edge

// Things in the cells of one agent's grid, of which the nearest is seen.
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

inline void mark_disc(Cells &cells, double reach_m, double right, double ahead, double radius,
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

inline void mark_square(Cells &cells, double reach_m, double right, double ahead, double sine,
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

// Marks the cells of a wall of which `covers` is true; `nearest` is its distance for `Cells::mark`.
template <class Covers>
void mark_wall(Cells &cells, double reach_m, double normal_x, double normal_z, double distance,
               double thickness, double nearest, int64_t tag, Covers covers) {
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
            if (std::fabs(across + normal_z * cells.middle(row)) < reach &&
                covers(-cells.middle(static_cast<double>(column)), cells.middle(row)))
                cells.mark(column * cells.n + static_cast<int64_t>(row), nearest, tag);
    }
}

// Begins the grids of some agents.
inline void begin(Cells &cells, int64_t n, double cell_m) {
    cells.n = n;
    cells.cell_m = cell_m;
    cells.n_covered = 0;
    std::memset(cells.tag, -1, sizeof cells.tag);
}

// Writes an agent's grid, (tags, cells, cells), and clears the cells for the next.
inline void write(Cells &cells, int64_t n_tags, float *seen) {
    const int64_t n_cells = cells.n * cells.n;
    std::memset(seen, 0, sizeof(float) * n_tags * n_cells);
    for (int64_t k = 0; k < cells.n_covered; ++k) {
        const int64_t cell = cells.covered[k];
        seen[cells.tag[cell] * n_cells + cell] = 1.0f;
        cells.tag[cell] = -1;
    }
    cells.n_covered = 0;
}
