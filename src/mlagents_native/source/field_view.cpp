// What players of a football field see: `mlagents_sim/examples/field_view.py`, which explains what
// is computed and is the reference. The same operations follow each other here.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "approach.h"
#include "circles.h"
#include "exports.h"
#include "unfused.h"

namespace {

constexpr int64_t BALL = 0, LEFT_GOAL = 1, RIGHT_GOAL = 2, WALL = 3, PLAYERS = 4;

// A ray, and what it meets first.
struct Ray {
    double x, z, inverse_x, inverse_z, nearest;
    int64_t target;

    void meet(double travel, int64_t its_target) {
        if (!(travel < nearest)) return;
        nearest = travel;
        target = its_target;
    }
};

struct Eye {
    double x, z, heading_x, heading_z;
};

void meet_disc(double x, double z, double together, int64_t target, const Eye &eye,
               std::vector<Ray> &rays) {
    const double apart_x = x - eye.x, apart_z = z - eye.z;
    const double outside = apart_x * apart_x + apart_z * apart_z;
    for (Ray &ray : rays) {
        const double closest = apart_x * ray.x + apart_z * ray.z;
        const double square = closest * closest - outside + together * together;
        if (!(square >= 0.0)) continue;
        const double travel = closest - std::sqrt(square);
        if (travel >= 0.0) ray.meet(travel, target);
    }
}

void meet_box(const FieldView &view, int64_t box, const Eye &eye, std::vector<Ray> &rays) {
    const int64_t n = view.n_boxes;
    const double half_x = view.half[box], half_z = view.half[n + box];
    const double sine = view.heading[box], cosine = view.heading[n + box];
    const double apart_x = view.center[box] - eye.x, apart_z = view.center[n + box] - eye.z;
    const double reach = std::sqrt(half_x * half_x + half_z * half_z) + view.radius;
    const double farthest = view.length + reach + 1.0;
    if (apart_x * apart_x + apart_z * apart_z > farthest * farthest) return;  // out of sight
    const double offset_x = -apart_x * cosine - -apart_z * sine;
    const double offset_z = -apart_x * sine + -apart_z * cosine;
    for (Ray &ray : rays) {
        // Most rays pass most boxes by.
        if (!(std::fabs(apart_x * ray.z - apart_z * ray.x) < reach)) continue;
        if (!(apart_x * ray.x + apart_z * ray.z > -reach)) continue;
        const double x = ray.x * cosine - ray.z * sine, z = ray.x * sine + ray.z * cosine;
        const double inverse_x = inverse(x), inverse_z = inverse(z);
        const Approach approach = {{offset_x, offset_z},
                                   {half_x, half_z},
                                   {x, z},
                                   {-offset_x * inverse_x, -offset_z * inverse_z},
                                   {std::fabs(inverse_x), std::fabs(inverse_z)}};
        ray.meet(enter_box(approach, view.radius), view.targets[box]);
    }
}

// Finds what the rays of a player meet, in the order in which equally distant things count. `tags`
// are those of what the player sees.
void look(const FieldView &view, int64_t area, int64_t member, const int8_t *tags, const Eye &eye,
          std::vector<Ray> &rays) {
    const Circles &discs = *view.field->discs;
    const int64_t n = discs.n_areas, axis = discs.n_discs * n, players = view.field->n_players;
    const double *const x = discs.position + area, *const z = x + axis;
    const auto meet_boxes = [&](int64_t first, int64_t end) {
        for (int64_t box = first; box < end; ++box)
            if (tags[view.targets[box]] >= 0) meet_box(view, box, eye, rays);
    };
    meet_disc(x[players * n], z[players * n], view.ball_m, BALL, eye, rays);
    for (Ray &ray : rays) {
        const int64_t goal = ray.x > 0.0 ? RIGHT_GOAL : LEFT_GOAL;
        const double travel = (std::copysign(view.end_m, ray.x) - eye.x) * ray.inverse_x;
        if (travel >= 0.0 && tags[goal] >= 0) ray.meet(travel, goal);
    }
    meet_boxes(0, view.n_goal_boxes);
    for (Ray &ray : rays) {
        const double travel = (std::copysign(view.side_m, ray.z) - eye.z) * ray.inverse_z;
        if (travel >= 0.0) ray.meet(travel, WALL);
    }
    meet_boxes(view.n_goal_boxes, view.n_boxes);
    for (int64_t k = 0; k < players; ++k)
        if (k != member && tags[PLAYERS + k] >= 0)
            meet_disc(x[k * n], z[k * n], view.player_m, PLAYERS + k, eye, rays);
}

void see(const FieldView &view, const int64_t *agents, int64_t n, float *seen) {
    const Circles &discs = *view.field->discs;
    const int64_t players = view.field->n_players, n_areas = discs.n_areas, size = view.n_tags + 2;
    const double *const headings = view.field->heading;
    std::vector<Ray> rays(static_cast<size_t>(view.n_rays));
    std::memset(seen, 0, sizeof(float) * n * view.n_rays * size);
    for (int64_t row = 0; row < n; ++row) {
        const int64_t agent = agents ? agents[row] : row;
        const int64_t area = agent / players, member = agent % players, at = member * n_areas + area;
        const Eye eye = {discs.position[at], discs.position[discs.n_discs * n_areas + at],
                         headings[at], headings[players * n_areas + at]};
        for (int64_t k = 0; k < view.n_rays; ++k) {
            const double right = view.directions[k], ahead = view.directions[view.n_rays + k];
            const double x = eye.heading_x * ahead + eye.heading_z * right;
            const double z = eye.heading_z * ahead - eye.heading_x * right;
            rays[k] = {x, z, inverse(x), inverse(z), INF, 0};
        }
        const int8_t *const tags = view.tags + member * (PLAYERS + players);
        look(view, area, member, tags, eye, rays);
        for (const Ray &ray : rays) {
            seen[ray.nearest <= view.length ? tags[ray.target] : size - 2] = 1.0f;
            seen[size - 1] = static_cast<float>(std::min(ray.nearest / view.length, 1.0));
            seen += size;
        }
    }
}

}  // namespace

NATIVE_EXPORT int field_view_version() { return 1; }

// Writes what n agents see, (n, R, tags + 2). `agents` are indices, or null for the first n. Returns
// 0, or -1 if there was no memory.
NATIVE_EXPORT int field_see(const FieldView *view, const int64_t *agents, int64_t n, float *seen) {
    return static_cast<int>(or_minus_one([&] {
        see(*view, agents, n, seen);
        return 0;
    }));
}
