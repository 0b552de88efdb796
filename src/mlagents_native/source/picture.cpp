// Pictures of solids: `mlagents_envs/solid_raster.py`, which explains what is computed and is the
// reference. Bands of rows keep what is known of their pixels in the cache.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "exports.h"

namespace {

constexpr float INF = std::numeric_limits<float>::infinity();
constexpr float TINY = 1e-12f;
constexpr int64_t BAND_ROWS = 4;
enum { BOX, BALL, CYLINDER, CAPSULE };

struct Vector {
    float x, y, z;
};

// If one operand is NaN, the result is the second operand.
inline float smaller(float a, float b) { return a < b ? a : b; }
inline float larger(float a, float b) { return a > b ? a : b; }

struct Span {
    float in, out;
};

// Returns between which multiples of `d` the line from `o` is in a solid of half extents 1. If it is
// never, the first is larger or both are NaN.
template <int SHAPE>
inline Span meet(Vector o, Vector d, float straight) {
    if (SHAPE == BOX) {
        const float x = 1.0f / d.x, y = 1.0f / d.y, z = 1.0f / d.z;
        const float x0 = (-1.0f - o.x) * x, x1 = (1.0f - o.x) * x;
        const float y0 = (-1.0f - o.y) * y, y1 = (1.0f - o.y) * y;
        const float z0 = (-1.0f - o.z) * z, z1 = (1.0f - o.z) * z;
        return {larger(larger(smaller(x0, x1), smaller(y0, y1)), smaller(z0, z1)),
                smaller(smaller(larger(x0, x1), larger(y0, y1)), larger(z0, z1))};
    }
    if (SHAPE == BALL) {
        const float a = d.x * d.x + d.y * d.y + d.z * d.z;
        const float s = -(o.x * d.x + o.y * d.y + o.z * d.z) / a;
        const float x = o.x + s * d.x, y = o.y + s * d.y, z = o.z + s * d.z;
        const float q = 1.0f - (x * x + y * y + z * z);
        const float half = std::sqrt(q / a);
        return {s - half, s + half};
    }
    const float a = larger(d.x * d.x + d.z * d.z, TINY);
    const float s = -(o.x * d.x + o.z * d.z) / a;
    const float x = o.x + s * d.x, z = o.z + s * d.z;
    const float q = 1.0f - (x * x + z * z);
    const float half = std::sqrt(q / a);
    if (SHAPE == CYLINDER) {
        const float up = 1.0f / d.y;
        const float y0 = (-1.0f - o.y) * up, y1 = (1.0f - o.y) * up;
        return {larger(smaller(y0, y1), s - half), smaller(larger(y0, y1), s + half)};
    }
    // Each end of the part within the endless cylinder is on the cylinder or on a cap.
    const float all = a + d.y * d.y;
    float ends[2] = {s - half, s + half};
    for (int end = 0; end < 2; ++end) {
        const float y = o.y + ends[end] * d.y;
        const float middle = smaller(larger(y, -straight), straight);
        const float h = o.y - middle;
        const float t = -(o.x * d.x + h * d.y + o.z * d.z) / all;
        const float cx = o.x + t * d.x, cy = h + t * d.y, cz = o.z + t * d.z;
        const float reach = std::sqrt((1.0f - (cx * cx + cy * cy + cz * cz)) / all);
        const float cap = (end ? t + reach : t - reach) + 0.0f * half;  // NaN beside the cylinder
        ends[end] = y != middle ? cap : ends[end];
    }
    return {ends[0], ends[1]};
}

// Returns how much a face is turned to the light, at a place of the surface: from -1 to 1.
//
// `light` is the direction to the light in the solid's frame, `faces` its cosines to the three axes,
// and `weight` the squared lengths of the frame's axes.
template <int SHAPE>
inline float facing(Vector p, float straight, Vector light, Vector faces, Vector weight) {
    if (SHAPE == BOX) {
        const float x = std::fabs(p.x), y = std::fabs(p.y), z = std::fabs(p.z);
        const float on_x = p.x > 0.0f ? faces.x : -faces.x;
        const float on_y = p.y > 0.0f ? faces.y : -faces.y;
        const float on_z = p.z > 0.0f ? faces.z : -faces.z;
        const float cosine = y > z ? on_y : on_z;
        return x > larger(y, z) ? on_x : cosine;
    }
    if (SHAPE == CAPSULE) p.y -= smaller(larger(p.y, -straight), straight);
    const float across = p.x * light.x + p.z * light.z;
    const float square = p.x * p.x * weight.x + p.z * p.z * weight.z;
    if (SHAPE == CYLINDER) {
        const float on_end = p.y > 0.0f ? faces.y : -faces.y;
        const float on_side = across / std::sqrt(square + TINY);
        return p.y * p.y > p.x * p.x + p.z * p.z ? on_end : on_side;
    }
    return (across + p.y * light.y) / std::sqrt(square + p.y * p.y * weight.y + TINY);
}

struct Solid {
    const float *m;  // (3, 3), from the camera's frame to the solid's
    Vector o;        // place of the camera in the solid's frame
    float straight;
    int32_t number;

    Vector turned(Vector v) const {
        return {m[0] * v.x + m[1] * v.y + m[2] * v.z, m[3] * v.x + m[4] * v.y + m[5] * v.z,
                m[6] * v.x + m[7] * v.y + m[8] * v.z};
    }
};

// What is known of n pixels of a row.
struct Row {
    float *depth, *light;
    int32_t *solid, *is_dark;
};

template <int SHAPE>
void see(const Solid &solid, Vector to_light, const float *__restrict asides, float up,
         int64_t first, int64_t end, Row row) {
    const float *m = solid.m;
    const Vector o = solid.o;
    const Vector base = {m[1] * up + m[2], m[4] * up + m[5], m[7] * up + m[8]};
    const Vector light = solid.turned(to_light);
    const Vector weight = {m[0] * m[0] + m[1] * m[1] + m[2] * m[2],
                           m[3] * m[3] + m[4] * m[4] + m[5] * m[5],
                           m[6] * m[6] + m[7] * m[7] + m[8] * m[8]};
    const Vector faces = {light.x / std::sqrt(weight.x), light.y / std::sqrt(weight.y),
                          light.z / std::sqrt(weight.z)};
    const float straight = solid.straight, mx = m[0], my = m[3], mz = m[6];
    const int32_t number = solid.number;
    float *__restrict depth = row.depth, *__restrict lights = row.light;
    int32_t *__restrict solids = row.solid;
    for (int64_t i = first; i < end; ++i) {
        const float aside = asides[i], before = depth[i], lit_before = lights[i];
        const int32_t solid_before = solids[i];
        const Vector d = {mx * aside + base.x, my * aside + base.y, mz * aside + base.z};
        const Span span = meet<SHAPE>(o, d, straight);
        const float t = span.in;
        const bool is_seen = (t <= span.out) & (t > 0.0f) & (t < before);
        // What is only needed of seen rays is computed of all, without a branch.
        const float at = is_seen ? t : 0.0f, share = is_seen ? 1.0f : 0.0f;
        const float lit = facing<SHAPE>({o.x + at * d.x, o.y + at * d.y, o.z + at * d.z}, straight,
                                        light, faces, weight);
        depth[i] = is_seen ? t : before;
        lights[i] = share * lit + (1.0f - share) * lit_before;
        solids[i] = is_seen ? number : solid_before;
    }
}

template <int SHAPE>
void darken(const Solid &solid, Vector to_light, const float *__restrict asides, float up,
            int64_t first, int64_t end, Row row) {
    const float *m = solid.m;
    const Vector o = solid.o, light = solid.turned(to_light);
    const Vector base = {m[1] * up + m[2], m[4] * up + m[5], m[7] * up + m[8]};
    const float straight = solid.straight, mx = m[0], my = m[3], mz = m[6];
    const int32_t number = solid.number;
    const float *__restrict depth = row.depth;
    const int32_t *__restrict solids = row.solid;
    int32_t *__restrict is_dark = row.is_dark;
    for (int64_t i = first; i < end; ++i) {
        const float aside = asides[i], t = depth[i];
        const Vector p = {o.x + t * (mx * aside + base.x), o.y + t * (my * aside + base.y),
                          o.z + t * (mz * aside + base.z)};
        const Span span = meet<SHAPE>(p, light, straight);
        const bool is_hit = (span.in <= span.out) & (span.out > 1e-3f) & (solids[i] != number);
        is_dark[i] = is_hit ? 1 : is_dark[i];
    }
}

using Pass = void (*)(const Solid &, Vector, const float *, float, int64_t, int64_t, Row);
constexpr Pass SEE[] = {see<BOX>, see<BALL>, see<CYLINDER>, see<CAPSULE>};
constexpr Pass DARKEN[] = {darken<BOX>, darken<BALL>, darken<CYLINDER>, darken<CAPSULE>};

// Turns the cosines of n rays, 1 toward the light, into brightness.
void shade(const float *shades, size_t n, float *__restrict lights,
           const int32_t *__restrict is_dark) {
    const float ambient = shades[0], lit = shades[1], away = shades[2];
    for (size_t i = 0; i < n; ++i) {
        const float towards = lights[i];
        const float bright = is_dark[i] ? 0.0f : lit * towards;
        lights[i] = ambient + (towards > 0.0f ? bright : away * towards);
    }
}

inline uint8_t rounded(float level) {
    return static_cast<uint8_t>(static_cast<int>(smaller(level + 0.5f, 255.0f)));
}

// Writes a row of pixels, each the mean of samples x samples rays.
void mix(uint8_t *pixel, int64_t width, int64_t samples, const uint8_t *color,
         const int32_t *solids, const float *lights) {
    const int64_t columns = width * samples;
    const float share = 1.0f / static_cast<float>(samples * samples);
    for (int64_t c = 0; c < width; ++c, pixel += 3, solids += samples, lights += samples) {
        bool is_one = true;
        float bright = 0.0f;
        for (int64_t i = 0; i < samples; ++i)
            for (int64_t k = 0; k < samples; ++k) {
                is_one &= solids[i * columns + k] == *solids;
                bright += lights[i * columns + k];
            }
        if (is_one) {  // most often
            if (*solids < 0) continue;
            const uint8_t *paint = color + 3 * *solids;
            for (int channel = 0; channel < 3; ++channel)
                pixel[channel] = rounded(static_cast<float>(paint[channel]) * (bright * share));
            continue;
        }
        float sum[3] = {0.0f, 0.0f, 0.0f};
        for (int64_t i = 0; i < samples; ++i)
            for (int64_t k = 0; k < samples; ++k) {
                const int64_t at = i * columns + k;
                const bool is_solid = solids[at] >= 0;
                const uint8_t *paint = is_solid ? color + 3 * solids[at] : pixel;
                bright = is_solid ? lights[at] : 1.0f;
                for (int channel = 0; channel < 3; ++channel)
                    sum[channel] += static_cast<float>(paint[channel]) * bright;
            }
        for (int channel = 0; channel < 3; ++channel)
            pixel[channel] = rounded(sum[channel] * share);
    }
}

}  // namespace

NATIVE_EXPORT int picture_version() { return 1; }

// Draws S solids into a picture (height, width, 3) that holds its background. Each pixel is the
// mean of samples x samples rays. The ray of column c and row r goes to (left + c step, top - r
// step, 1). `seen` and `shadow` are (S, 4) first rows, ends, first columns and ends, by rays.
NATIVE_EXPORT void picture_draw(uint8_t *image, int64_t height, int64_t width, int64_t samples,
                                float left, float top, float step, const float *to_light,
                                const float *shades, int64_t n_solids, const int32_t *shape,
                                const float *to_solid, const float *camera, const float *straight,
                                const uint8_t *color, const int32_t *seen,
                                const int32_t *shadow) {
    const int64_t columns = width * samples, rows = height * samples;
    const int64_t band_rows = BAND_ROWS * samples, n_pixels = columns * band_rows;
    const Vector light = {to_light[0], to_light[1], to_light[2]};
    std::vector<float> aside(columns), depth(n_pixels), lights(n_pixels);
    for (int64_t c = 0; c < columns; ++c) aside[c] = left + static_cast<float>(c) * step;
    std::vector<int32_t> solids(n_pixels), dark(n_pixels);
    for (int64_t begin = 0; begin < rows; begin += band_rows) {
        const int64_t stop = std::min(rows, begin + band_rows);
        std::fill(depth.begin(), depth.end(), INF);
        std::fill(lights.begin(), lights.end(), 0.0f);
        std::fill(solids.begin(), solids.end(), -1);
        std::fill(dark.begin(), dark.end(), 0);
        bool is_touched = false;
        for (int pass = 0; pass < 2; ++pass) {
            const int32_t *bounds = pass ? shadow : seen;
            for (int64_t k = 0; k < n_solids; ++k, bounds += 4) {
                const int64_t from = std::max<int64_t>(begin, bounds[0]);
                const int64_t to = std::min<int64_t>(stop, bounds[1]);
                if (from >= to || bounds[2] >= bounds[3]) continue;
                is_touched = true;
                const Solid solid = {to_solid + 9 * k,
                                     {camera[3 * k], camera[3 * k + 1], camera[3 * k + 2]},
                                     straight[k],
                                     static_cast<int32_t>(k)};
                const Pass run = pass ? DARKEN[shape[k]] : SEE[shape[k]];
                for (int64_t r = from; r < to; ++r) {
                    const int64_t at = (r - begin) * columns;
                    run(solid, light, aside.data(), top - static_cast<float>(r) * step, bounds[2],
                        bounds[3],
                        {depth.data() + at, lights.data() + at, solids.data() + at,
                         dark.data() + at});
                }
            }
        }
        if (!is_touched) continue;
        const size_t n = static_cast<size_t>((stop - begin) * columns);
        shade(shades, n, lights.data(), dark.data());
        for (int64_t r = begin / samples; r < stop / samples; ++r) {
            const int64_t at = (r * samples - begin) * columns;
            mix(image + r * width * 3, width, samples, color, solids.data() + at,
                lights.data() + at);
        }
    }
}
