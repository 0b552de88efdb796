// Boxes that move and collide on a floor, in many areas at once. The reference is
// `mlagents_sim/planar.py`. Operations have the same order as there, so results are bit-identical.
// This needs -ffp-contract=off.
//
// Arrays end with an axis of N areas, as in Python. Areas do not affect each other.

#include "planar.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "contact.h"
#include "exports.h"

namespace {

constexpr double LANDED_M = 1e-7;
constexpr int ITERATIONS = 3;
constexpr double GRIP = 2.0 * 0.6;
constexpr double LOWEST_CLEAR_M = -0.05;
constexpr double SUPPORT_GAP_M = 0.05;
constexpr double PROBE_START_M = 0.05, PROBE_END_M = 1.05;
constexpr double NARROWER_M = 0.025;
constexpr double INF = std::numeric_limits<double>::infinity();

// Least separation speeds of surfaces: in this step, and after it.
inline double least_in_step(double gap) { return std::min(gap * CLOSING_PER_S, PUSH_OUT_M_S); }
inline double least_after(double in_step) { return std::min(in_step, 0.0); }

inline double clipped(double value, double most) { return std::min(std::max(value, -most), most); }

struct Contact {
    int64_t first, second, pair;
    double x, z;      // from the first body to the second
    double least[2];  // separation speeds
};

struct Velocity {
    double x[2], z[2];  // in this step, and after it
};

void settle(const Contact &contact, const Bodies &bodies, Velocity *velocities) {
    Velocity &first = velocities[contact.first], &second = velocities[contact.second];
    const double share_first = bodies.shares[2 * contact.pair];
    const double share_second = bodies.shares[2 * contact.pair + 1];
    for (int kind = 0; kind < 2; ++kind) {
        const double apart_x = second.x[kind] - first.x[kind];
        const double apart_z = second.z[kind] - first.z[kind];
        const double nearing = apart_x * contact.x + apart_z * contact.z;
        const double slip = apart_x * -contact.z + apart_z * contact.x;
        const double push = std::max(contact.least[kind] - nearing, 0.0);
        const double brake = clipped(slip, bodies.friction[contact.pair] * push);
        const double change_x = push * contact.x - brake * -contact.z;
        const double change_z = push * contact.z - brake * contact.x;
        first.x[kind] += change_x * -share_first;
        first.z[kind] += change_z * -share_first;
        second.x[kind] += change_x * share_second;
        second.z[kind] += change_z * share_second;
    }
}

// Highest speeds of a body toward the walls: low and high, in x and z, in this step and after it.
struct Limits {
    double low[2][2], high[2][2];  // [axis][kind]
};

void stop_at_walls(const Limits &limits, double friction, Velocity &velocity) {
    for (int kind = 0; kind < 2; ++kind) {
        const double x = velocity.x[kind], z = velocity.z[kind];
        double stopped_x = std::min(std::max(x, limits.low[0][kind]), limits.high[0][kind]);
        double stopped_z = std::min(std::max(z, limits.low[1][kind]), limits.high[1][kind]);
        const double limit_x = friction * std::fabs(stopped_z - z);
        const double limit_z = friction * std::fabs(stopped_x - x);
        stopped_x -= clipped(stopped_x, limit_x);
        stopped_z -= clipped(stopped_z, limit_z);
        velocity.x[kind] = std::min(std::max(stopped_x, limits.low[0][kind]), limits.high[0][kind]);
        velocity.z[kind] = std::min(std::max(stopped_z, limits.low[1][kind]), limits.high[1][kind]);
    }
}

// Return whether two boxes touch, and fill in the direction and the least speeds of parting.
bool meet(const Bodies &bodies, int64_t first, int64_t second, Contact &contact) {
    const int64_t axis = bodies.n_bodies * bodies.n_areas;
    const double *heading = bodies.heading, *half = bodies.half, *place = bodies.position;
    const double apart_x = place[second] - place[first];
    const double apart_z = place[axis + second] - place[axis + first];
    // Faces: right and ahead of the first body, then of the second.
    const double x[4] = {heading[axis + first], heading[first], heading[axis + second],
                         heading[second]};
    const double z[4] = {-heading[first], heading[axis + first], -heading[second],
                         heading[axis + second]};
    const double halves[4] = {half[first], half[axis + first], half[second], half[axis + second]};
    double gap = -INF, toward = 0.0;
    int widest = 0;
    for (int face = 0; face < 4; ++face) {
        const int other = face < 2 ? 2 : 0;
        const double seen = x[face] * apart_x + z[face] * apart_z;
        const double shadow =
            std::fabs(x[face] * x[other] + z[face] * z[other]) * halves[other] +
            std::fabs(x[face] * x[other + 1] + z[face] * z[other + 1]) * halves[other + 1];
        const double its_gap = std::fabs(seen) - halves[face] - shadow;
        if (its_gap > gap) {
            gap = its_gap;
            toward = seen;
            widest = face;
        }
    }
    if (!(gap < TOUCH_M)) return false;
    const double side = std::copysign(1.0, toward);
    contact.x = x[widest] * side;
    contact.z = z[widest] * side;
    contact.least[0] = least_in_step(gap);
    contact.least[1] = least_after(contact.least[0]);
    return true;
}

// Put the bodies on the floor if none is above it; else move them up and down by a step.
void drop(Bodies &bodies) {
    const int64_t n = bodies.n_bodies * bodies.n_areas;
    double *above = bodies.above, *climbs = bodies.climb;
    bodies.is_falling = std::any_of(above, above + n, [](double height) { return height != 0.0; });
    for (int64_t i = 0; i < n; ++i) {
        if (!bodies.is_falling) {
            climbs[i] = 0.0;
            bodies.pressed[i] = bodies.fall[i] * bodies.kept[i];
            continue;
        }
        const double climb = (climbs[i] - bodies.fall[i]) * bodies.kept[i];
        const bool touches = above[i] < TOUCH_M;
        const double least_now = touches ? least_in_step(above[i]) : -INF;
        const double least_then = touches ? least_after(least_now) : -INF;
        bodies.pressed[i] = std::max(least_then - climb, 0.0);
        above[i] += std::max(climb, least_now) * STEP_S;
        climbs[i] = std::max(climb, least_then);
        if (std::fabs(above[i]) + std::fabs(climbs[i]) * STEP_S < LANDED_M)
            above[i] = climbs[i] = 0.0;
    }
}

// Slow the bodies by drag and by the friction of the floor; find their extents.
void brake(Bodies &bodies) {
    const int64_t n = bodies.n_bodies * bodies.n_areas;
    double *__restrict v_x = bodies.velocity, *__restrict v_z = v_x + n;
    double *__restrict reach_x = bodies.reach, *__restrict reach_z = reach_x + n;
    const double *kept = bodies.kept, *grip = bodies.grip, *pressed = bodies.pressed;
    const double *heading_x = bodies.heading, *heading_z = heading_x + n;
    const double *half_x = bodies.half, *half_z = half_x + n;
    for (int64_t i = 0; i < n; ++i) {
        const double x = v_x[i] * kept[i], z = v_z[i] * kept[i];
        const double speed = std::sqrt(x * x + z * z) + TINY;
        const double unbraked = std::max(1.0 - grip[i] * pressed[i] / speed, 0.0);
        v_x[i] = x * unbraked;
        v_z[i] = z * unbraked;
        const double ahead_x = std::fabs(heading_x[i]), ahead_z = std::fabs(heading_z[i]);
        reach_x[i] = ahead_z * half_x[i] + ahead_x * half_z[i];
        reach_z[i] = ahead_x * half_x[i] + ahead_z * half_z[i];
    }
}

// Mark the bodies that touch walls: (2 sides, 2 axes, B, N).
void touch_walls(Bodies &bodies) {
    const int64_t n = 2 * bodies.n_bodies * bodies.n_areas;
    const double *place = bodies.position, *reach = bodies.reach;
    uint8_t *__restrict low = bodies.touching_walls, *__restrict high = low + n;
    for (int64_t i = 0; i < n; ++i) low[i] = place[i] - reach[i] - bodies.low[i] < TOUCH_M;
    for (int64_t i = 0; i < n; ++i) high[i] = bodies.high[i] - place[i] - reach[i] < TOUCH_M;
}

// Mark the pairs that are near each other in `touching`.
void near_pairs(Bodies &bodies) {
    const int64_t n = bodies.n_areas, axis = bodies.n_bodies * n;
    for (int64_t pair = 0; pair < bodies.n_pairs; ++pair) {
        const int64_t first = bodies.pairs[2 * pair] * n, second = bodies.pairs[2 * pair + 1] * n;
        const double *place = bodies.position, *reach = bodies.reach;
        const uint8_t *solid = bodies.is_solid + pair * n;
        uint8_t *__restrict near = bodies.touching + pair * n;
        for (int64_t i = 0; i < n; ++i) {
            const double x = place[second + i] - place[first + i];
            const double z = place[axis + second + i] - place[axis + first + i];
            const double most_x = reach[first + i] + reach[second + i] + TOUCH_M;
            const double most_z = reach[axis + first + i] + reach[axis + second + i] + TOUCH_M;
            near[i] = (std::fabs(x) < most_x) & (std::fabs(z) < most_z) & solid[i];
        }
    }
}

// Settle the contacts and walls of one area, of which some are marked, and move its bodies.
void settle_area(Bodies &bodies, int64_t area, Contact *contacts, Velocity *velocities,
                 Limits *limits) {
    const int64_t n = bodies.n_areas, axis = bodies.n_bodies * n;
    int n_contacts = 0;
    for (int64_t pair = 0; pair < bodies.n_pairs; ++pair) {
        uint8_t &touching = bodies.touching[pair * n + area];
        if (!touching) continue;
        Contact &contact = contacts[n_contacts];
        contact.first = bodies.pairs[2 * pair];
        contact.second = bodies.pairs[2 * pair + 1];
        contact.pair = pair;
        touching = meet(bodies, contact.first * n + area, contact.second * n + area, contact);
        n_contacts += touching;
    }
    bool at_wall = false;
    for (int64_t body = 0; body < bodies.n_bodies; ++body) {
        const int64_t i = body * n + area;
        velocities[body] = {{bodies.velocity[i], bodies.velocity[i]},
                            {bodies.velocity[axis + i], bodies.velocity[axis + i]}};
        if (!bodies.has_walls) continue;
        for (int d = 0; d < 2; ++d) {
            const int64_t at = d * axis + i;
            const bool at_low = bodies.touching_walls[at],
                       at_high = bodies.touching_walls[2 * axis + at];
            at_wall |= at_low | at_high;
            const double to_low =
                least_in_step(bodies.position[at] - bodies.reach[at] - bodies.low[at]);
            const double to_high =
                least_in_step(bodies.high[at] - bodies.position[at] - bodies.reach[at]);
            limits[body].low[d][0] = at_low ? to_low : -INF;
            limits[body].low[d][1] = at_low ? least_after(to_low) : -INF;
            limits[body].high[d][0] = at_high ? -to_high : INF;
            limits[body].high[d][1] = at_high ? -least_after(to_high) : INF;
        }
    }
    // A body with a single contact is settled at once.
    const int iterations = n_contacts + at_wall > 1 ? ITERATIONS : 1;
    for (int iteration = 0; iteration < iterations; ++iteration) {
        for (int k = 0; k < n_contacts; ++k) settle(contacts[k], bodies, velocities);
        if (!at_wall) continue;
        for (int64_t body = 0; body < bodies.n_bodies; ++body)
            stop_at_walls(limits[body], bodies.wall_friction, velocities[body]);
    }
    for (int64_t body = 0; body < bodies.n_bodies; ++body) {
        const int64_t i = body * n + area;
        const Velocity &velocity = velocities[body];
        bodies.position[i] += velocity.x[0] * STEP_S;
        bodies.position[axis + i] += velocity.z[0] * STEP_S;
        bodies.velocity[i] = velocity.x[1];
        bodies.velocity[axis + i] = velocity.z[1];
    }
}

void turn(const Motion &motion) {
    const Bodies &bodies = *motion.bodies;
    double *__restrict x = bodies.heading, *__restrict z = x + bodies.n_bodies * bodies.n_areas;
    for (int64_t i = 0; i < bodies.n_areas; ++i) {
        const double turned_x = x[i] * motion.cosine[i] + z[i] * motion.sine[i];
        z[i] = z[i] * motion.cosine[i] - x[i] * motion.sine[i];
        x[i] = turned_x;
    }
}

void push(const Motion &motion) {
    const Bodies &bodies = *motion.bodies;
    const int64_t n = bodies.n_areas, all = bodies.n_bodies * n;
    if (motion.static_grip)
        for (int64_t i = 0; i < all; ++i) {
            const bool moves = (bodies.velocity[i] != 0.0) | (bodies.velocity[all + i] != 0.0);
            bodies.grip[i] = moves ? motion.dynamic_grip[i] : motion.static_grip[i];
        }
    double *__restrict v_x = bodies.velocity, *__restrict v_z = v_x + all;
    const double *x = bodies.heading, *z = x + all;
    for (int64_t i = 0; i < n; ++i) {
        v_x[i] += x[i] * motion.forward[i] + z[i] * motion.right[i];
        v_z[i] += z[i] * motion.forward[i] - x[i] * motion.right[i];
    }
}

// Put the piece of wall and the object beside the first body of each area.
void surround(const Ring &ring, Bodies &bodies) {
    const int64_t n = bodies.n_areas, axis = bodies.n_bodies * n;
    for (int64_t i = 0; i < n; ++i) {
        const double x = bodies.position[i], z = bodies.position[axis + i];
        const double distance = std::sqrt(x * x + z * z);
        const double outward_x = distance > 0.0 ? x / distance : 0.0;
        const double outward_z = distance > 0.0 ? z / distance : 1.0;
        int64_t nearest = 0;
        double farthest_along = -INF;
        for (int64_t slot = 0; slot < ring.n_slots; ++slot) {
            const double along = x * ring.slots[slot] + z * ring.slots[ring.n_slots + slot];
            if (along > farthest_along) {
                farthest_along = along;
                nearest = slot;
            }
        }
        const int64_t item = ring.items[nearest * n + i];
        const double slot_x = ring.slots[nearest], slot_z = ring.slots[ring.n_slots + nearest];
        const double item_m = item < 0 ? ring.far_m : ring.item_m;
        const int64_t wall_at = ring.wall * n + i, item_at = ring.item * n + i;
        bodies.heading[wall_at] = outward_x;
        bodies.heading[axis + wall_at] = outward_z;
        bodies.position[wall_at] = outward_x * ring.wall_m;
        bodies.position[axis + wall_at] = outward_z * ring.wall_m;
        bodies.heading[item_at] = slot_x;
        bodies.heading[axis + item_at] = slot_z;
        bodies.position[item_at] = slot_x * item_m;
        bodies.position[axis + item_at] = slot_z * item_m;
        ring.near[i] = item;
    }
}

// Fraction of a slip that friction takes, if a support stops a speed.
inline double rubbed(double slip_x, double slip_z, double pressed, double gain) {
    const double most = GRIP * pressed;
    const double slip = std::sqrt(slip_x * slip_x + slip_z * slip_z);
    return most / std::max(slip, most * (1.0 + gain) + TINY);
}

// Begin a step of agents that stand: find supports, begin jumps, push, turn and apply friction.
void step_off(const Motion &motion) {
    Standing &standing = *motion.standing;
    Bodies &bodies = *motion.bodies;
    const int64_t n = bodies.n_areas, axis = bodies.n_bodies * n, carrier = standing.carrier * n;
    double *v_x = bodies.velocity, *v_z = v_x + axis;
    double *heading_x = bodies.heading, *heading_z = heading_x + axis;
    for (int64_t i = 0; i < n; ++i) {
        bool is_braked = false, is_carried = false, is_on_ground = false;
        for (int64_t support = 0; support < standing.n_supports; ++support) {
            const int64_t at = support * n + i;
            const double above = standing.height[i] - standing.half - standing.tops[at];
            const bool is_cleared = above > LOWEST_CLEAR_M;
            const bool is_on = is_cleared & (above < SUPPORT_GAP_M) & standing.feet_over[at];
            standing.is_cleared[at] = is_cleared;
            standing.on[at] = is_on;
            (support == standing.loose ? is_carried : is_braked) |= is_on;
            is_on_ground |= (above + standing.half > PROBE_START_M) &
                            (above + standing.half <= PROBE_END_M) & standing.center_over[at];
        }
        const bool stood = is_braked | is_carried;
        standing.is_braked[i] = is_braked;
        standing.stood[i] = stood;
        if (standing.wants_to_jump[i] && standing.jump_left[i] <= 0.0 && is_on_ground) {
            standing.jump_left[i] = standing.jump_steps;
            standing.jump_to[i] = standing.height[i] + standing.jump_height_m;
        }

        const double x = heading_x[i], z = heading_z[i];
        const double part = stood ? 1.0 : standing.air_push;
        const double push_x = (x * motion.forward[i] + z * motion.right[i]) * part;
        const double push_z = (z * motion.forward[i] - x * motion.right[i]) * part;
        const bool jumps = standing.jump_left[i] > 0.0;
        if (jumps) {
            const double change_x = push_x * standing.jump_speed_per_m - v_x[i];
            const double change_z = push_z * standing.jump_speed_per_m - v_z[i];
            const double change_y =
                (standing.jump_to[i] - standing.height[i]) * standing.jump_speed_per_m -
                standing.climb[i];
            const double size =
                std::sqrt(change_x * change_x + change_z * change_z + change_y * change_y);
            const double taken =
                standing.jump_change_m_s / std::max(size, standing.jump_change_m_s);
            v_x[i] += change_x * taken;
            v_z[i] += change_z * taken;
            standing.climb[i] += change_y * taken;
        }
        v_x[i] += push_x * standing.push_m_s;
        v_z[i] += push_z * standing.push_m_s;
        if (!(jumps | stood)) standing.climb[i] -= standing.hold;
        standing.jump_left[i] -= 1.0;

        heading_x[i] = x * motion.cosine[i] + z * motion.sine[i];
        heading_z[i] = z * motion.cosine[i] - x * motion.sine[i];

        const double kept = bodies.kept[i], weight = standing.fall[i] * kept;
        bodies.pressed[i] = is_braked ? weight : 0.0;
        if (is_carried && !is_braked) {
            const double carrier_kept = bodies.kept[carrier + i];
            double &carrier_x = v_x[carrier + i], &carrier_z = v_z[carrier + i];
            const double slip_x = v_x[i] * kept - carrier_x * carrier_kept;
            const double slip_z = v_z[i] * kept - carrier_z * carrier_kept;
            const double taken = rubbed(slip_x, slip_z, weight, standing.gain);
            const double lost_x = slip_x * taken, lost_z = slip_z * taken;
            v_x[i] -= lost_x / kept;
            v_z[i] -= lost_z / kept;
            carrier_x += lost_x * standing.gain / carrier_kept;
            carrier_z += lost_z * standing.gain / carrier_kept;
        }
    }
}

// Move agents up or down after the bodies moved; land those that reach a support.
void come_down(Standing &standing, Bodies &bodies) {
    const int64_t n = bodies.n_areas, axis = bodies.n_bodies * n, carrier = standing.carrier * n;
    const int64_t n_boxes = standing.n_supports + standing.n_zones;
    double *v_x = bodies.velocity, *v_z = v_x + axis;
    for (int64_t i = 0; i < n; ++i) {
        const double x = bodies.position[i], z = bodies.position[axis + i], reach = bodies.reach[i];
        const int64_t loose = standing.loose * n + i;
        standing.boxes_at[loose] = bodies.position[carrier + i];
        standing.boxes_at[n_boxes * n + loose] = bodies.position[axis + carrier + i];
        double ground = -INF;
        for (int64_t box = 0; box < n_boxes; ++box) {
            const int64_t at_x = box * n + i, at_z = (n_boxes + box) * n + i;
            const double farthest =
                std::max(std::fabs(x - standing.boxes_at[at_x]) - standing.box_halves[at_x],
                         std::fabs(z - standing.boxes_at[at_z]) - standing.box_halves[at_z]);
            if (box >= standing.n_supports) {
                standing.is_over_zone[(box - standing.n_supports) * n + i] = farthest < reach;
                continue;
            }
            const bool feet_over = farthest < reach - NARROWER_M;
            standing.feet_over[at_x] = feet_over;
            standing.center_over[at_x] = farthest < 0.0;
            if (feet_over && standing.is_cleared[at_x])
                ground = std::max(ground, standing.tops[at_x]);
        }
        const double before = standing.climb[i], kept = bodies.kept[i];
        standing.climb[i] = (before - standing.fall[i]) * kept;
        standing.height[i] += standing.climb[i] * STEP_S;
        const double least = ground + standing.half;
        if (!(standing.height[i] < least)) continue;
        standing.height[i] = least;
        standing.climb[i] = 0.0;
        if (!(before < 0.0)) continue;
        // The friction of an agent that stood is already applied.
        const double stopped = ((standing.stood[i] ? 0.0 : standing.fall[i]) - before) * kept;
        bool on_loose = false, on_fixed = false;
        for (int64_t support = 0; support < standing.n_supports; ++support) {
            const int64_t at = support * n + i;
            const bool is_on =
                standing.feet_over[at] && standing.is_cleared[at] && standing.tops[at] == ground;
            (support == standing.loose ? on_loose : on_fixed) |= is_on;
        }
        const bool drags = on_loose && !on_fixed;
        double slip_x = v_x[i], slip_z = v_z[i];
        if (drags) {
            slip_x -= v_x[carrier + i];
            slip_z -= v_z[carrier + i];
        }
        const double gain = drags ? standing.gain : 0.0;
        const double taken = rubbed(slip_x, slip_z, stopped, gain);
        if (drags) {
            v_x[carrier + i] += slip_x * taken * gain;
            v_z[carrier + i] += slip_z * taken * gain;
        }
        v_x[i] -= slip_x * taken;
        v_z[i] -= slip_z * taken;
    }
}

bool any(const uint8_t *marks, int64_t n) {
    return std::any_of(marks, marks + n, [](uint8_t mark) { return mark != 0; });
}

// Return whether a watched body is outside its bounds, which the task judges in the next step.
bool has_left(const Motion &motion) {
    const Bodies &bodies = *motion.bodies;
    const int64_t n = bodies.n_areas, axis = bodies.n_bodies * n;
    for (int64_t body = 0; body < bodies.n_bodies; ++body) {
        if (!motion.watched_bodies[body]) continue;
        for (int d = 0; d < 2; ++d) {
            const double *place = bodies.position + d * axis + body * n;
            int outside = 0;
            for (int64_t i = 0; i < n; ++i)
                outside |= std::fabs(place[i] - motion.middle[d]) > motion.extent[d];
            if (outside) return true;
        }
    }
    return false;
}

// Return whether a watched event happened in the last step.
bool has_happened(const Motion &motion) {
    const Bodies &bodies = *motion.bodies;
    const int64_t n = bodies.n_areas;
    for (int64_t pair = 0; pair < bodies.n_pairs; ++pair)
        if (motion.watched_pairs[pair] && any(bodies.touching + pair * n, n)) return true;
    for (int64_t wall = 0; wall < 4 * bodies.n_bodies; ++wall)
        if (motion.watched_walls[wall] && any(bodies.touching_walls + wall * n, n)) return true;
    const Standing *standing = motion.standing;
    return standing && any(standing->is_over_zone, standing->n_zones * n);
}

}  // namespace

NATIVE_EXPORT int planar_version() { return 2; }

NATIVE_EXPORT void planar_move_bodies(Bodies *bodies) {
    const int64_t n = bodies->n_areas;
    if (bodies->is_falling) drop(*bodies);
    brake(*bodies);
    uint8_t *__restrict busy = bodies->busy;
    std::fill(busy, busy + n, 0);
    if (bodies->n_pairs) near_pairs(*bodies);
    for (int64_t pair = 0; pair < bodies->n_pairs; ++pair)
        for (int64_t i = 0; i < n; ++i) busy[i] |= bodies->touching[pair * n + i];
    if (bodies->has_walls) {
        touch_walls(*bodies);
        for (int64_t wall = 0; wall < 4 * bodies->n_bodies; ++wall)
            for (int64_t i = 0; i < n; ++i) busy[i] |= bodies->touching_walls[wall * n + i];
    }
    for (int64_t row = 0; row < 2 * bodies->n_bodies; ++row) {
        double *__restrict place = bodies->position + row * n;
        const double *velocity = bodies->velocity + row * n;
        for (int64_t i = 0; i < n; ++i) place[i] += busy[i] ? 0.0 : velocity[i] * STEP_S;
    }
    if (!any(busy, n)) return;
    std::vector<Contact> contacts(bodies->n_pairs);
    std::vector<Velocity> velocities(bodies->n_bodies);
    std::vector<Limits> limits(bodies->n_bodies);
    for (int64_t i = 0; i < n; ++i)
        if (busy[i]) settle_area(*bodies, i, contacts.data(), velocities.data(), limits.data());
}

NATIVE_EXPORT void planar_steer(Motion *motion) {
    if (motion->standing) {
        step_off(*motion);
        return;
    }
    if (motion->pushes_first) push(*motion);
    turn(*motion);
}

NATIVE_EXPORT void planar_move(Motion *motion) {
    Bodies &bodies = *motion->bodies;
    Standing *standing = motion->standing;
    if (standing) {
        const int64_t n = bodies.n_areas;
        for (int64_t support = 0; support < standing->n_supports; ++support) {
            const int64_t pair = standing->solid_pairs[support];
            for (int64_t i = 0; pair >= 0 && i < n; ++i)
                bodies.is_solid[pair * n + i] = !standing->is_cleared[support * n + i];
        }
    } else if (!motion->pushes_first) {
        push(*motion);
    }
    if (motion->ring) surround(*motion->ring, bodies);
    planar_move_bodies(&bodies);
    if (standing) come_down(*standing, bodies);
}

NATIVE_EXPORT int64_t planar_run(Motion *motion, int64_t most_steps) {
    for (int64_t step = 0; step < most_steps; ++step) {
        if (has_left(*motion)) return step;
        planar_steer(motion);
        planar_move(motion);
        if (has_happened(*motion)) return step + 1;
    }
    return most_steps;
}
