// Agents that push, turn, shoot and eat on floors. The reference is `examples/food_floors.py`.

#include "forage.h"

#include <algorithm>
#include <cmath>

#include "approach.h"
#include "exports.h"

extern "C" void planar_move_bodies(Bodies *bodies);

namespace {

const double DIAGONAL = std::sqrt(2.0);

void push_and_turn(Forage &forage) {
    Bodies &bodies = *forage.bodies;
    const int64_t n = bodies.n_bodies * bodies.n_areas;
    double *v_x = bodies.velocity, *v_z = v_x + n;
    double *heading_x = bodies.heading, *heading_z = heading_x + n;
    for (int64_t i = 0; i < n; ++i) {
        forage.frozen[i] = std::max<int64_t>(forage.frozen[i] - 1, 0);
        const bool is_free = forage.frozen[i] == 0, is_shooting = is_free && forage.shoots[i];
        forage.is_shooting[i] = is_shooting;
        double kept = is_shooting ? forage.kept_shooting : 1.0;
        double x = v_x[i] * kept, z = v_z[i] * kept, square = x * x + z * z;
        if (bodies.is_falling) {
            bodies.climb[i] *= kept;
            square += bodies.climb[i] * bodies.climb[i];
        }
        kept = square > forage.fast_m2_s2 ? forage.kept_fast : 1.0;
        x *= kept;
        z *= kept;
        if (bodies.is_falling) bodies.climb[i] *= kept;
        const double push = is_shooting ? forage.push_shooting_m_s : forage.push_m_s;
        const double strength = is_free ? push : 0.0;
        const double right = forage.right[i] * strength, ahead = forage.ahead[i] * strength;
        const double facing_x = heading_x[i], facing_z = heading_z[i];
        v_x[i] = x + (facing_x * ahead + facing_z * right);
        v_z[i] = z + (facing_z * ahead - facing_x * right);
        const double sine = is_free ? forage.sine[i] : 0.0;
        const double cosine = is_free ? forage.cosine[i] : 1.0;
        heading_x[i] = facing_x * cosine + facing_z * sine;
        heading_z[i] = facing_z * cosine - facing_x * sine;
    }
}

// Returns whether neither a wall nor food is in front of a target.
bool is_clear(const Forage &forage, int64_t area, int64_t shooter, double target) {
    const Bodies &bodies = *forage.bodies;
    const int64_t n = bodies.n_areas, axis = bodies.n_bodies * n;
    const double x = bodies.position[shooter], z = bodies.position[axis + shooter];
    const double facing_x = bodies.heading[shooter], facing_z = bodies.heading[axis + shooter];
    const double reach = forage.walls_m - forage.laser_radius_m;
    const double wall_x = ((facing_x > 0.0 ? reach : -reach) - x) * inverse(facing_x);
    const double wall_z = ((facing_z > 0.0 ? reach : -reach) - z) * inverse(facing_z);
    if (wall_x >= 0.0 && wall_x < target) return false;
    if (wall_z >= 0.0 && wall_z < target) return false;
    const double height = bodies.half[shooter] + bodies.above[shooter];
    const double radius = radius_at_edge(forage.laser_radius_m + forage.food_radius_m,
                                         std::fabs(height - forage.food_radius_m));
    for (int64_t food = 0; food < forage.n_foods; ++food) {
        const int64_t at = food * n + area;
        if (forage.falling[at] > 0) continue;
        const double apart_x = forage.food[at] - x;
        const double apart_z = forage.food[forage.n_foods * n + at] - z;
        const double closest = apart_x * facing_x + apart_z * facing_z;
        const double square =
            closest * closest - (apart_x * apart_x + apart_z * apart_z) + radius * radius;
        if (!(square >= 0.0)) continue;
        const double travel = closest - std::sqrt(square);
        if (travel >= 0.0 && travel < target) return false;
    }
    return true;
}

// Returns the distance of a shot to another agent, infinite for a miss.
double shot_to(const Forage &forage, int64_t shooter, int64_t other) {
    const Bodies &bodies = *forage.bodies;
    const int64_t axis = bodies.n_bodies * bodies.n_areas;
    const double facing_x = bodies.heading[shooter], facing_z = bodies.heading[axis + shooter];
    const double apart_x = bodies.position[other] - bodies.position[shooter];
    const double apart_z = bodies.position[axis + other] - bodies.position[axis + shooter];
    const double right = apart_x * facing_z - apart_z * facing_x;
    const double ahead = apart_x * facing_x + apart_z * facing_z;
    const double reach = bodies.half[other] * DIAGONAL + forage.laser_radius_m;
    if (!(std::fabs(right) < reach && ahead > 0.0 && ahead < reach + forage.laser_m)) return INF;
    const double x = bodies.heading[other], z = bodies.heading[axis + other];
    Approach shot;
    shot.offset[0] = -apart_x * z - -apart_z * x;
    shot.offset[1] = -apart_x * x + -apart_z * z;
    shot.direction[0] = facing_x * z - facing_z * x;
    shot.direction[1] = facing_x * x + facing_z * z;
    for (int d = 0; d < 2; ++d) {
        const double inverted = inverse(shot.direction[d]);
        shot.half[d] = bodies.half[d * axis + other];
        shot.middle[d] = -shot.offset[d] * inverted;
        shot.steepness[d] = std::fabs(inverted);
    }
    return enter_box(shot, forage.laser_radius_m);
}

void shoot(Forage &forage) {
    const int64_t n = forage.bodies->n_areas, n_members = forage.bodies->n_bodies;
    for (int64_t shooter = 0; shooter < n_members * n; ++shooter) {
        if (!forage.is_shooting[shooter]) continue;
        const int64_t area = shooter % n;
        double nearest = forage.laser_m;
        int64_t hit = -1;
        for (int64_t other = area; other < n_members * n; other += n) {
            if (other == shooter) continue;
            const double distance = shot_to(forage, shooter, other);
            if (distance > nearest || distance == INF || (distance == nearest && hit >= 0)) continue;
            nearest = distance;
            hit = other;
        }
        if (hit >= 0 && forage.frozen[hit] == 0 && is_clear(forage, area, shooter, nearest))
            forage.frozen[hit] = forage.frozen_steps;
    }
}

void find_touch(Forage &forage) {
    const Bodies &bodies = *forage.bodies;
    for (int64_t i = 0; i < bodies.n_bodies * bodies.n_areas; ++i) {
        const double low = bodies.above[i], high = low + 2.0 * bodies.half[i];
        const double beyond = std::max(low - forage.food_radius_m, forage.food_radius_m - high);
        forage.touch[i] = forage.touch_m + radius_at_edge(forage.food_radius_m, beyond);
    }
}

// Lets agents eat; returns how many pieces were eaten.
int64_t eat(Forage &forage) {
    Bodies &bodies = *forage.bodies;
    const int64_t n = bodies.n_areas, axis = bodies.n_bodies * n, foods = forage.n_foods;
    for (int64_t i = 0; i < foods * n; ++i)
        forage.falling[i] = std::max<int64_t>(forage.falling[i] - 1, 0);
    int64_t n_eaten = 0;
    for (int64_t member = 0; member < bodies.n_bodies; ++member) {
        for (int64_t food = 0; food < foods; ++food) {
            const double *food_x = forage.food + food * n, *food_z = food_x + foods * n;
            const double *place_x = bodies.position + member * n, *place_z = place_x + axis;
            const double *reach_x = bodies.reach + member * n, *reach_z = reach_x + axis;
            const double *touch = forage.touch + member * n;
            uint8_t *__restrict is_near = bodies.busy;
            int any = 0;
            for (int64_t i = 0; i < n; ++i) {
                is_near[i] = (std::fabs(food_x[i] - place_x[i]) < reach_x[i] + touch[i]) &
                             (std::fabs(food_z[i] - place_z[i]) < reach_z[i] + touch[i]);
                any |= is_near[i];
            }
            for (int64_t area = 0; any && area < n; ++area) {
                if (!is_near[area] || forage.falling[food * n + area] != 0) continue;
                const int64_t at = member * n + area;
                const double x = bodies.heading[at], z = bodies.heading[axis + at];
                const double apart_x = food_x[area] - place_x[area];
                const double apart_z = food_z[area] - place_z[area];
                const double seen_x = apart_x * z - apart_z * x, seen_z = apart_x * x + apart_z * z;
                const double half_x = bodies.half[at], half_z = bodies.half[axis + at];
                const double right = seen_x - std::min(std::max(seen_x, -half_x), half_x);
                const double ahead = seen_z - std::min(std::max(seen_z, -half_z), half_z);
                const double way_x = x * ahead + z * right, way_z = z * ahead - x * right;
                const double gap = std::sqrt(way_x * way_x + way_z * way_z);
                if (!(gap < touch[area])) continue;
                const double least = std::max(gap, 1e-9);
                const double to_x = way_x / least, to_z = way_z / least;
                const double speed = bodies.velocity[at] * to_x + bodies.velocity[axis + at] * to_z;
                const double lost = forage.bump * std::max(speed, 0.0);
                forage.lost[2 * n_eaten] = lost * to_x;
                forage.lost[2 * n_eaten + 1] = lost * to_z;
                int64_t *eaten = forage.eaten + 3 * n_eaten++;
                eaten[0] = area;
                eaten[1] = member;
                eaten[2] = food;
            }
        }
    }
    for (int64_t k = 0; k < n_eaten; ++k) {
        const int64_t at = forage.eaten[3 * k + 1] * n + forage.eaten[3 * k];
        bodies.velocity[at] -= forage.lost[2 * k];
        bodies.velocity[axis + at] -= forage.lost[2 * k + 1];
    }
    return n_eaten;
}

}  // namespace

NATIVE_EXPORT void forage_act(Forage *forage) {
    push_and_turn(*forage);
    shoot(*forage);
}

NATIVE_EXPORT void forage_move(Forage *forage) {
    const bool was_falling = forage->bodies->is_falling;
    planar_move_bodies(forage->bodies);
    if (was_falling) find_touch(*forage);
    forage->n_eaten = eat(*forage);
}

NATIVE_EXPORT int64_t forage_run(Forage *forage, int64_t most_steps) {
    forage->n_eaten = 0;
    for (int64_t step = 0; step < most_steps; ++step) {
        forage_act(forage);
        forage_move(forage);
        if (forage->n_eaten) return step + 1;
    }
    return most_steps;
}
