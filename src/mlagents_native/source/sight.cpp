// Ray observations and stacks of frames. The reference is `rays.py`, `ray_view.py` and
// `frame_stack.py` in `mlagents_sim`. Operations have the same order as there, so results are
// bit-identical.

#include "sight.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "approach.h"
#include "exports.h"

namespace {

constexpr double GRAZE_M = 1e-6;

// Rays of an agent that are traced together, and the first object that each meets.
constexpr int MOST_RAYS = 32;

struct Fan {
    int n;
    double origin_x, origin_z;
    double x[MOST_RAYS], z[MOST_RAYS];                  // directions
    double inverse_x[MOST_RAYS], inverse_z[MOST_RAYS];  // their reciprocals
    double nearest[MOST_RAYS];
    int64_t tag[MOST_RAYS];
};

// Distance along a rising ray to a box with a lower and an upper edge; `up` is the start relative
// to the box's middle.
double enter_solid(const Approach &box, double up, double slope, double half_height,
                   double radius) {
    const double offset[3] = {box.offset[0], box.offset[1], up};
    const double direction[3] = {box.direction[0], box.direction[1], slope};
    const double half[3] = {box.half[0], box.half[1], half_height};
    double bends[7] = {};
    for (int d = 0; d < 3; ++d) {
        const double inverted = inverse(direction[d]);
        const double middle = -offset[d] * inverted, span = half[d] * std::fabs(inverted);
        bends[1 + d] = std::max(middle - span, 0.0);
        bends[4 + d] = std::max(middle + span, 0.0);
    }
    int last = 0;
    double farthest = 0.0, outside = 0.0, nearing = 0.0;
    bool comes_near = false;
    for (int bend = 0; bend < 7; ++bend) {
        double squares[3], aways[3];
        for (int d = 0; d < 3; ++d) {
            const double point = offset[d] + direction[d] * bends[bend];
            const double beyond = std::max(std::fabs(point) - half[d], 0.0);
            squares[d] = beyond * beyond;
            aways[d] = std::copysign(beyond, point) * direction[d];
        }
        const double its_outside = squares[0] + squares[1] + squares[2] - radius * radius;
        const double its_nearing = -(aways[0] + aways[1] + aways[2]);
        const bool is_before = its_outside >= 0.0 && its_nearing > 0.0;
        if (bend == 0 || (is_before && bends[bend] > farthest)) {
            last = bend;
            farthest = is_before ? bends[bend] : 0.0;
            outside = its_outside;
            nearing = its_nearing;
            comes_near = is_before;
        }
    }
    if (!comes_near) return INF;
    double squares[3];
    for (int d = 0; d < 3; ++d) {
        const bool is_beyond = bends[last] < bends[1 + d] || bends[last] >= bends[4 + d];
        squares[d] = direction[d] * direction[d] * (is_beyond ? 1.0 : 0.0);
    }
    const double square = nearing * nearing - (squares[0] + squares[1] + squares[2]) * outside;
    if (!(square >= 0.0)) return INF;
    return outside / (nearing + std::sqrt(std::max(square, 0.0))) + bends[last];
}

// Start of the rays of an agent.
struct Eye {
    int64_t area, member;
    double x, z, heading_x, heading_z, scale, above;
};

void meet_room(const Rays &rays, const Eye &eye, Fan &fan) {
    double radius = rays.room_radius;
    if (!std::isnan(rays.room_edge_m)) {
        const double edge = rays.room_edge_m + eye.above;
        radius = radius_at_edge(radius, edge);
        if (edge >= rays.room_radius + GRAZE_M) return;
    }
    const double low_x = rays.room_low[0] / eye.scale, high_x = rays.room_high[0] / eye.scale;
    const double low_z = rays.room_low[1] / eye.scale, high_z = rays.room_high[1] / eye.scale;
    for (int k = 0; k < fan.n; ++k) {
        const double face_x = fan.x[k] > 0.0 ? high_x - radius : low_x + radius;
        const double face_z = fan.z[k] > 0.0 ? high_z - radius : low_z + radius;
        const double x = (face_x - fan.origin_x) * fan.inverse_x[k];
        const double z = (face_z - fan.origin_z) * fan.inverse_z[k];
        fan.nearest[k] = std::min(x < 0.0 ? INF : x, z < 0.0 ? INF : z);
        fan.tag[k] = rays.room_tag;
    }
}

void meet_discs(const Rays &rays, const SeenDiscs &discs, const Eye &eye, Fan &fan) {
    const int64_t n = rays.bodies->n_areas, at = eye.member * n + eye.area;
    const double height = rays.bodies->half[at] + rays.bodies->above[at];
    const double below = std::fabs(height - discs.height_m) / eye.scale;
    const double radius = radius_at_edge(rays.radius + discs.radius / eye.scale, below);
    for (int64_t disc = 0; disc < discs.count; ++disc) {
        const int64_t place = disc * n + eye.area;
        if (discs.hidden[place]) continue;
        const double x = discs.center[place] / eye.scale - fan.origin_x;
        const double z = discs.center[discs.count * n + place] / eye.scale - fan.origin_z;
        const double outside = x * x + z * z;
        for (int k = 0; k < fan.n; ++k) {
            const double closest = x * fan.x[k] + z * fan.z[k];
            const double square = closest * closest - outside + radius * radius;
            const double travel = closest - std::sqrt(std::max(square, 0.0));
            const bool is_first = (square >= 0.0) & (travel >= 0.0) & (travel < fan.nearest[k]);
            fan.nearest[k] = is_first ? travel : fan.nearest[k];
            fan.tag[k] = is_first ? discs.tags[disc] : fan.tag[k];
        }
    }
}

// Distance along a ray to a box that it is near, by the heights of both.
double enter(const Rays &rays, const SeenBox &box, int64_t area, const Approach &approach) {
    if (!rays.has_flight) return enter_box(approach, box.radius);
    const double low = box.low[area], high = box.high[area];
    const double start = rays.height[area] + rays.start_m;
    const double above = start - high, below = low - start;
    if (above >= box.radius && rays.slope >= 0.0) return INF;
    if (below >= box.radius && rays.slope <= 0.0) return INF;
    if (rays.slope == 0.0)
        return enter_box(approach, radius_at_edge(box.radius, std::max(below, above)));
    return enter_solid(approach, start - (low + high) / 2.0, rays.slope, (high - low) / 2.0,
                       box.radius);
}

void meet_box(const Rays &rays, const SeenBox &box, const Eye &eye, Fan &fan) {
    const Bodies &bodies = *rays.bodies;
    const int64_t axis = bodies.n_bodies * bodies.n_areas;
    const int64_t at = box.body * bodies.n_areas + eye.area;
    double center_x = box.center[0], center_z = box.center[1];
    double half_x = box.half[0], half_z = box.half[1];
    if (box.body >= 0) {
        center_x = bodies.position[at] / eye.scale;
        center_z = bodies.position[axis + at] / eye.scale;
        half_x = bodies.half[at] / eye.scale;
        half_z = bodies.half[axis + at] / eye.scale;
    }
    double offset_x = fan.origin_x - center_x, offset_z = fan.origin_z - center_z;
    Fan turned;
    const Fan *seen = &fan;  // by the axes of the box
    if (box.is_turned) {
        const double x = box.body >= 0 ? bodies.heading[at] : box.heading[0];
        const double z = box.body >= 0 ? bodies.heading[axis + at] : box.heading[1];
        const double apart_x = offset_x, apart_z = offset_z;
        offset_x = apart_x * z - apart_z * x;
        offset_z = apart_x * x + apart_z * z;
        for (int k = 0; k < fan.n; ++k) {
            turned.x[k] = fan.x[k] * z - fan.z[k] * x;
            turned.z[k] = fan.x[k] * x + fan.z[k] * z;
            turned.inverse_x[k] = inverse(turned.x[k]);
            turned.inverse_z[k] = inverse(turned.z[k]);
        }
        seen = &turned;
    }
    // The rays that meet the box enlarged by the radius, with sharp corners.
    double is_near[MOST_RAYS];
    const double most_x = half_x + box.radius, most_z = half_z + box.radius;
    for (int k = 0; k < fan.n; ++k) {
        const double middle_x = -offset_x * seen->inverse_x[k];
        const double middle_z = -offset_z * seen->inverse_z[k];
        const double span_x = most_x * std::fabs(seen->inverse_x[k]);
        const double span_z = most_z * std::fabs(seen->inverse_z[k]);
        const double enter = std::max(middle_x - span_x, middle_z - span_z);
        const double leave = std::min(middle_x + span_x, middle_z + span_z);
        is_near[k] = (enter <= leave) & (leave >= 0.0) & (enter < fan.nearest[k]) ? 1.0 : 0.0;
    }
    for (int k = 0; k < fan.n; ++k) {
        if (is_near[k] == 0.0) continue;
        const double inverse_x = seen->inverse_x[k], inverse_z = seen->inverse_z[k];
        const Approach approach = {{offset_x, offset_z},
                                   {half_x, half_z},
                                   {seen->x[k], seen->z[k]},
                                   {-offset_x * inverse_x, -offset_z * inverse_z},
                                   {std::fabs(inverse_x), std::fabs(inverse_z)}};
        const double travel = enter(rays, box, eye.area, approach);
        if (!(travel < fan.nearest[k])) continue;
        fan.nearest[k] = travel;
        fan.tag[k] = box.tags ? box.tags[eye.area] : box.tag;
    }
}

// Finds the first object that each ray of the fan meets.
void look(const Rays &rays, const Eye &eye, Fan &fan) {
    for (int k = 0; k < fan.n; ++k) {
        fan.inverse_x[k] = inverse(fan.x[k]);
        fan.inverse_z[k] = inverse(fan.z[k]);
        fan.nearest[k] = INF;
        fan.tag[k] = 0;
    }
    if (rays.has_room) meet_room(rays, eye, fan);
    if (rays.discs) meet_discs(rays, *rays.discs, eye, fan);
    for (int64_t k = 0; k < rays.n_boxes; ++k) {
        const SeenBox &box = rays.boxes[k];
        if (box.body != eye.member && (!box.tags || box.tags[eye.area] >= 0))
            meet_box(rays, box, eye, fan);
    }
}

}  // namespace

// Writes the observations of n agents, (n, R, tags + 2). `agents` are indices, or null for the
// first n.
NATIVE_EXPORT void planar_see(const Rays *rays, const int64_t *agents, int64_t n, float *seen) {
    const Bodies &bodies = *rays->bodies;
    const int64_t axis = bodies.n_bodies * bodies.n_areas, size = rays->n_tags + 2;
    std::memset(seen, 0, sizeof(float) * n * rays->n_rays * size);
    for (int64_t row = 0; row < n; ++row) {
        const int64_t agent = agents ? agents[row] : row;
        const int64_t area = agent / rays->n_members, member = agent % rays->n_members;
        const int64_t at = member * bodies.n_areas + area;
        const double scale = rays->unit_half_m > 0.0 ? bodies.half[at] / rays->unit_half_m : 1.0;
        const Eye eye = {area,
                         member,
                         bodies.position[at] / scale,
                         bodies.position[axis + at] / scale,
                         bodies.heading[at],
                         bodies.heading[axis + at],
                         scale,
                         bodies.above[at]};
        Fan fan;
        fan.origin_x = eye.x;
        fan.origin_z = eye.z;
        for (int64_t first = 0; first < rays->n_rays; first += MOST_RAYS) {
            fan.n = static_cast<int>(std::min<int64_t>(rays->n_rays - first, MOST_RAYS));
            const double *right = rays->directions + first, *ahead = right + rays->n_rays;
            for (int k = 0; k < fan.n; ++k) {
                fan.x[k] = eye.heading_x * ahead[k] + eye.heading_z * right[k];
                fan.z[k] = eye.heading_z * ahead[k] - eye.heading_x * right[k];
            }
            look(*rays, eye, fan);
            for (int k = 0; k < fan.n; ++k, seen += size) {
                const bool is_met = fan.nearest[k] <= rays->length;
                seen[is_met ? fan.tag[k] : size - 2] = 1.0f;
                seen[size - 1] = static_cast<float>(std::min(fan.nearest[k] / rays->length, 1.0));
            }
        }
    }
}

// Adds a frame of n agents and writes their stacks, (n, n_before + 1, frame). `agents` are
// indices, or null for all; only then does the ring turn.
NATIVE_EXPORT void planar_stack(Stack *stack, const int64_t *agents, int64_t n,
                                const uint8_t *frames, uint8_t *out) {
    const int64_t bytes = stack->frame_bytes, n_before = stack->n_before;
    for (int64_t row = 0; row < n; ++row) {
        const int64_t agent = agents ? agents[row] : row;
        uint8_t *its_frames = out + row * (n_before + 1) * bytes;
        for (int64_t k = 0; k < n_before; ++k) {
            const int64_t slot = (stack->start + k) % n_before;
            std::memcpy(its_frames + k * bytes,
                        stack->ring + (slot * stack->n_agents + agent) * bytes, bytes);
        }
        std::memcpy(its_frames + n_before * bytes, frames + row * bytes, bytes);
        if (!n_before) continue;
        if (!agents) {
            std::memcpy(stack->ring + (stack->start * stack->n_agents + agent) * bytes,
                        its_frames + n_before * bytes, bytes);
            continue;
        }
        // All agents share the slots, so the frames of only some agents must be moved.
        for (int64_t k = 0; k < n_before; ++k) {
            const int64_t slot = (stack->start + k) % n_before;
            std::memcpy(stack->ring + (slot * stack->n_agents + agent) * bytes,
                        its_frames + (k + 1) * bytes, bytes);
        }
    }
    if (!agents && n_before) stack->start = (stack->start + 1) % n_before;
}
