// Images of convex shapes. The reference is `mlagents_sim/raster.py`. Letters in shapes: N scenes,
// F shapes in each, K corners, H rows.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "exports.h"

namespace {

constexpr double INF = std::numeric_limits<double>::infinity();

// Writes the pixels of a row between two columns, of which the reference rounds the same way.
void put_run(double first, double last, int64_t width, int16_t &begin, int16_t &end) {
    const double most = static_cast<double>(width);
    const double from = std::min(std::max(std::ceil(first), 0.0), most);
    const double to = std::min(std::floor(last) + 1.0, most);
    if (!(from < to)) return;
    begin = static_cast<int16_t>(from);
    end = static_cast<int16_t>(to);
}

// Returns the rows in which a shape may have pixels, and one more on each side.
void rows_between(double top, double bottom, int64_t height, int64_t &first, int64_t &end) {
    const double most = static_cast<double>(height);
    const double from = std::min(std::max(std::ceil(top) - 1.0, 0.0), most);
    first = static_cast<int64_t>(from);
    end = static_cast<int64_t>(std::max(std::min(std::floor(bottom) + 2.0, most), from));
}

}  // namespace

// Finds the pixels of polygons of 4 corners: `points` are (3, 4, S), runs are (S, H), zeros at
// first.
NATIVE_EXPORT void raster_polygons(const double *points, int64_t n_shapes, int64_t height,
                                   int64_t width, int16_t *first, int16_t *end) {
    constexpr int CORNERS = 4;
    const double most_u = static_cast<double>(width), most_v = static_cast<double>(height);
    for (int64_t shape = 0; shape < n_shapes; ++shape, first += height, end += height) {
        double u[CORNERS], v[CORNERS], w[CORNERS], a[CORNERS], b[CORNERS], c[CORNERS];
        bool is_beyond[4] = {true, true, true, true}, is_before = true;
        for (int k = 0; k < CORNERS; ++k) {
            u[k] = points[k * n_shapes + shape];
            v[k] = points[(CORNERS + k) * n_shapes + shape];
            w[k] = points[(2 * CORNERS + k) * n_shapes + shape];
            is_beyond[0] &= u[k] + w[k] < 0.0;
            is_beyond[1] &= most_u * w[k] - u[k] < 0.0;
            is_beyond[2] &= v[k] + w[k] < 0.0;
            is_beyond[3] &= most_v * w[k] - v[k] < 0.0;
            is_before &= w[k] > 0.0;
        }
        if (is_beyond[0] || is_beyond[1] || is_beyond[2] || is_beyond[3]) continue;
        for (int k = 0; k < CORNERS; ++k) {
            const int next = (k + 1) % CORNERS;
            a[k] = v[k] * w[next] - w[k] * v[next];
            b[k] = w[k] * u[next] - u[k] * w[next];
            c[k] = u[k] * v[next] - v[k] * u[next];
        }
        if (!(a[0] * u[2] + b[0] * v[2] + c[0] * w[2] > 0.0)) continue;
        double top = -INF, bottom = INF;
        if (is_before) {
            top = INF;
            bottom = -INF;
            for (int k = 0; k < CORNERS; ++k) {
                top = std::min(top, v[k] / w[k]);
                bottom = std::max(bottom, v[k] / w[k]);
            }
        }
        int64_t row, end_row;
        rows_between(top, bottom, height, row, end_row);
        for (; row < end_row; ++row) {
            double from = -INF, to = INF;
            for (int k = 0; k < CORNERS; ++k) {
                const double crossing = (b[k] * static_cast<double>(row) + c[k]) / -(a[k] + 0.0);
                if (a[k] >= 0.0)
                    from = std::fmax(from, crossing);
                else
                    to = std::fmin(to, crossing);
            }
            put_run(from, to, width, first[row], end[row]);
        }
    }
}

// Finds the pixels of spheres: `points` are (3, S), `spreads` (3, 3, S), runs (S, H), zeros at
// first.
NATIVE_EXPORT void raster_spheres(const double *points, const double *spreads, int64_t n_shapes,
                                  int64_t height, int64_t width, int16_t *first, int16_t *end) {
    for (int64_t shape = 0; shape < n_shapes; ++shape, first += height, end += height) {
        double point[3], dual[3][3];
        for (int i = 0; i < 3; ++i) point[i] = points[i * n_shapes + shape];
        for (int i = 0; i < 3; ++i)
            for (int k = 0; k < 3; ++k)
                dual[i][k] = point[i] * point[k] - spreads[(3 * i + k) * n_shapes + shape];
        const double eye = spreads[8 * n_shapes + shape];
        if (!(point[2] > 0.0 && point[2] * point[2] > eye)) continue;
        const double p = dual[0][0], q = dual[0][1], r = dual[0][2];
        const double s = dual[1][1], t = dual[1][2], u = dual[2][2];
        const double middle = t / u, reach = std::sqrt(std::max(t * t - s * u, 0.0)) / u;
        const double a = s * u - t * t, b = r * t - q * u, d = q * t - r * s;
        const double c = p * u - r * r, e = q * r - p * t, f = p * s - q * q;
        int64_t row, end_row;
        rows_between(middle - reach, middle + reach, height, row, end_row);
        for (; row < end_row; ++row) {
            const double at = static_cast<double>(row), half = b * at + d;
            const double square = half * half - a * (c * (at * at) + 2.0 * e * at + f);
            if (!(square >= 0.0)) continue;
            const double root = std::sqrt(square);
            put_run((root - half) / a, (-root - half) / a, width, first[row], end[row]);
        }
    }
}

// Paints S shapes, (S, H) runs of (S, 3) colors, into (N, 3, H, W) pictures, in this order. The
// picture of a shape is `scene[shape]`, or shape % N. `order` are the shapes from the first to the
// last that is painted, or null for this order.
NATIVE_EXPORT void raster_paint(uint8_t *images, int64_t n_images, int64_t height, int64_t width,
                                const int16_t *first, const int16_t *end, const uint8_t *colors,
                                const int64_t *scene, const int64_t *order, int64_t n_shapes) {
    for (int64_t k = 0; k < n_shapes; ++k) {
        const int64_t shape = order ? order[k] : k;
        uint8_t *image = images + (scene ? scene[shape] : shape % n_images) * 3 * height * width;
        for (int64_t row = 0; row < height; ++row) {
            const int16_t from = first[shape * height + row], to = end[shape * height + row];
            if (from >= to) continue;
            for (int channel = 0; channel < 3; ++channel)
                std::memset(image + (channel * height + row) * width + from,
                            colors[3 * shape + channel], static_cast<size_t>(to - from));
        }
    }
}

// Draws shaded backgrounds into some of (N, 3, P) pictures: `lightest`, (3, P), darkened by the sum
// of R rows of `shades`, (rows, P), by `per_level`.
NATIVE_EXPORT void raster_shade(uint8_t *images, const int64_t *which, int64_t n, int64_t n_pixels,
                                const uint8_t *lightest, const uint8_t *shades, const int64_t *rows,
                                int64_t n_rows, int64_t per_level) {
    const unsigned divisor = static_cast<unsigned>(per_level);
    for (int64_t k = 0; k < n; ++k) {
        uint8_t *__restrict image = images + which[k] * 3 * n_pixels;
        const uint8_t *__restrict shade = shades + rows[k * n_rows] * n_pixels;
        uint8_t *units = image + 2 * n_pixels;  // until the last channel is drawn
        std::memcpy(units, shade, static_cast<size_t>(n_pixels));
        for (int64_t row = 1; row < n_rows; ++row) {
            shade = shades + rows[k * n_rows + row] * n_pixels;
            for (int64_t i = 0; i < n_pixels; ++i)
                units[i] = static_cast<uint8_t>(units[i] + shade[i]);
        }
        if (divisor == 8)
            for (int64_t i = 0; i < n_pixels; ++i) units[i] = static_cast<uint8_t>(units[i] >> 3);
        else
            for (int64_t i = 0; i < n_pixels; ++i)
                units[i] = static_cast<uint8_t>(units[i] / divisor);
        for (int channel = 0; channel < 3; ++channel) {
            const uint8_t *__restrict light = lightest + channel * n_pixels;
            uint8_t *plane = image + channel * n_pixels;
            for (int64_t i = 0; i < n_pixels; ++i)
                plane[i] = static_cast<uint8_t>(light[i] - units[i]);
        }
    }
}

// Paints n cells, of which each has its list of P pixels in (cells, P), into n of (N, 3, pixels)
// pictures.
NATIVE_EXPORT void raster_stamp(uint8_t *images, const int64_t *which, int64_t n, int64_t n_pixels,
                                const int64_t *pixels, const int64_t *cells, int64_t n_listed,
                                const uint8_t *color) {
    for (int64_t k = 0; k < n; ++k) {
        const int64_t *listed = pixels + cells[k] * n_listed;
        for (int channel = 0; channel < 3; ++channel) {
            uint8_t *plane = images + (which[k] * 3 + channel) * n_pixels;
            for (int64_t i = 0; i < n_listed; ++i) plane[listed[i]] = color[channel];
        }
    }
}
