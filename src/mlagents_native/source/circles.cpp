// Discs on a floor, which roll, bounce and rub, and football fields of them:
// `mlagents_sim/circles.py` and `examples/soccer_field.py`, which explain what is computed and are
// the reference. The same operations follow each other here, so that results are equal to the last
// bit. This needs -ffp-contract=off.
#include "circles.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "contact.h"
#include "exports.h"
#include "unfused.h"

namespace {

constexpr double SMALLEST_M = 1e-9;
constexpr double BOUNCE_M_S = 2.0;
constexpr int ITERATIONS = 6, RUBBING = 3;

inline double clipped(double value, double most) { return std::min(std::max(value, -most), most); }

// A disc of an area in a step.
struct Disc {
    double vx, vz, spin_x, spin_z, spin_y, up;
    double way_x, way_z;                 // unit vector of the motion when the step began
    double ahead, aside, pressed;        // what the floor has taken
};

// A contact of two discs. The second may be what never moves.
struct Contact {
    int64_t a, b;
    double x, z;                                  // from the first to the second
    double wanted[2];                             // in this step, and after it
    double share[2], arm[2], spins[2];
    double part;
    double pushed, braked, lifted;                // what the contact has taken
};

void set_ways(Disc &disc) {
    const double divisor = std::sqrt(disc.vx * disc.vx + disc.vz * disc.vz) + TINY;
    disc.way_x = disc.vx / divisor;
    disc.way_z = disc.vz / divisor;
    disc.ahead = disc.aside = disc.pressed = 0.0;
}

// Keeps a disc on the floor, and brakes it if it slides.
inline void press(const Circles &of, int64_t index, Disc &disc, double wanted, bool rubs) {
    const double pressed = std::max(disc.pressed + wanted - disc.up, 0.0);
    disc.up += pressed - disc.pressed;
    disc.pressed = pressed;
    if (!rubs) return;
    const double arm = of.arm[index], part = of.floor_part[index];
    const double x = disc.vx + disc.spin_z * arm, z = disc.vz - disc.spin_x * arm;
    const double limit = of.floor_friction * pressed;
    const double all_ahead =
        clipped((x * disc.way_x + z * disc.way_z) * part + disc.ahead, limit);
    const double all_aside =
        clipped((z * disc.way_x - x * disc.way_z) * part + disc.aside, limit);
    const double ahead = all_ahead - disc.ahead, aside = all_aside - disc.aside;
    disc.ahead = all_ahead;
    disc.aside = all_aside;
    const double stop_x = ahead * disc.way_x - aside * disc.way_z;
    const double stop_z = ahead * disc.way_z + aside * disc.way_x;
    disc.vx -= stop_x;
    disc.vz -= stop_z;
    disc.spin_x += of.floor_spin[index] * stop_z;
    disc.spin_z -= of.floor_spin[index] * stop_x;
}

// Pushes two discs apart and applies their friction.
void settle(Contact &of, Disc *discs, double wanted, double friction, bool rubs) {
    Disc &one = discs[of.a], &other = discs[of.b];
    const double apart_x = other.vx - one.vx, apart_z = other.vz - one.vz;
    const double pushed =
        std::max(of.pushed + wanted - (apart_x * of.x + apart_z * of.z), 0.0);
    const double push = pushed - of.pushed;
    of.pushed = pushed;
    double x = push * of.x, z = push * of.z;
    if (rubs) {
        const double limit = friction * pushed;
        double slip = apart_z * of.x - apart_x * of.z;
        slip += one.spin_y * of.arm[0] + other.spin_y * of.arm[1];
        const double about_x = one.spin_x * of.arm[0] + other.spin_x * of.arm[1];
        const double about_z = one.spin_z * of.arm[0] + other.spin_z * of.arm[1];
        const double rise = other.up - one.up + about_x * of.z - about_z * of.x;
        const double braked = clipped(of.braked + slip * of.part, limit);
        const double lifted = clipped(of.lifted + rise * of.part, limit);
        const double brake = braked - of.braked, lift = lifted - of.lifted;
        of.braked = braked;
        of.lifted = lifted;
        x += brake * of.z;
        z -= brake * of.x;
        Disc *const both[2] = {&one, &other};
        for (int k = 0; k < 2; ++k) {
            both[k]->spin_y -= of.spins[k] * brake;
            both[k]->spin_x -= of.spins[k] * lift * of.z;
            both[k]->spin_z += of.spins[k] * lift * of.x;
        }
        one.up += of.share[0] * lift;
        other.up -= of.share[1] * lift;
    }
    one.vx -= of.share[0] * x;
    one.vz -= of.share[0] * z;
    other.vx += of.share[1] * x;
    other.vz += of.share[1] * z;
}

Contact make_contact(const Circles &of, int64_t a, int64_t b, double x, double z, double gap,
                     const Disc *discs) {
    Contact contact;
    contact.a = a;
    contact.b = b;
    contact.x = x;
    contact.z = z;
    const double in_step = std::min(gap * CLOSING_PER_S, PUSH_OUT_M_S);
    contact.wanted[0] = in_step;
    contact.wanted[1] = std::min(in_step, 0.0);
    // What approaches fast and meets in this step bounces.
    const double nearing =
        -((discs[b].vx - discs[a].vx) * x + (discs[b].vz - discs[a].vz) * z);
    const double bounce = std::max(of.bounce[a], of.bounce[b]);
    if (bounce > 0.0 && nearing > BOUNCE_M_S && nearing * STEP_S > gap)
        contact.wanted[0] = contact.wanted[1] = bounce * nearing;
    const int64_t bodies[2] = {a, b};
    const double both = of.lightness[a] + of.lightness[b];
    double turning[2];
    for (int k = 0; k < 2; ++k) {
        const double lightness = of.lightness[bodies[k]], radius = of.radius[bodies[k]];
        const double least = std::max(radius, SMALLEST_M);
        contact.arm[k] = radius + gap;
        contact.share[k] = lightness / both;
        contact.spins[k] =
            of.rolls[bodies[k]] * lightness * contact.arm[k] / (least * least) / both;
        turning[k] = contact.spins[k] * contact.arm[k];
    }
    contact.part = 1.0 / (1.0 + (turning[0] + turning[1]));
    contact.pushed = contact.braked = contact.lifted = 0.0;
    return contact;
}

// Memory for the discs of an area.
struct Area {
    std::vector<Disc> discs;  // C + 1: one more stands for what never moves
    std::vector<Contact> contacts;
};

void load(const Circles &of, int64_t area, std::vector<Disc> &discs) {
    const int64_t n = of.n_areas, axis = of.n_discs * n;
    for (int64_t k = 0; k < of.n_discs; ++k) {
        const int64_t i = k * n + area;
        Disc &disc = discs[k];
        const double kept = of.kept[k];
        disc.vx = of.velocity[i] * kept;
        disc.vz = of.velocity[axis + i] * kept;
        disc.spin_x = of.spin[i] * kept;
        disc.spin_z = of.spin[axis + i] * kept;
        disc.spin_y = of.spin[2 * axis + i] * kept;
        disc.up = of.fall[i];
        set_ways(disc);
    }
    discs[of.n_discs] = {};
}

// Marks the pairs of an area that touch, and adds their contacts.
void meet_discs(const Circles &of, int64_t index, Area &area) {
    const int64_t n = of.n_areas, axis = of.n_discs * n;
    for (int64_t pair = 0; pair < of.n_pairs; ++pair) {
        const int64_t a = of.pairs[pair], b = of.pairs[of.n_pairs + pair];
        const double *const x = of.position + index, *const z = x + axis;
        const double apart_x = x[b * n] - x[a * n], apart_z = z[b * n] - z[a * n];
        const double distance = std::sqrt(apart_x * apart_x + apart_z * apart_z);
        const bool touches = distance < of.reach[pair];
        of.touching[pair * n + index] = touches;
        if (!touches) continue;
        const double divisor = std::max(distance, SMALLEST_M);
        const double normal_x = apart_x / divisor, normal_z = apart_z / divisor;
        of.normal[pair * n + index] = normal_x;
        of.normal[(of.n_pairs + pair) * n + index] = normal_z;
        const double gap = distance - of.reach[pair] + TOUCH_M;
        area.contacts.push_back(
            make_contact(of, a, b, normal_x, normal_z, gap, area.discs.data()));
    }
}

// Adds the contact of a disc at a place with a wall, if they touch.
void meet_wall(const Circles &of, int64_t disc, double x, double z, int64_t wall, Area &area) {
    const double reach = of.radius[disc] + TOUCH_M;
    const double heading_x = of.wall_heading[wall], heading_z = of.wall_heading[of.n_walls + wall];
    const double to_x = x - of.wall_center[wall], to_z = z - of.wall_center[of.n_walls + wall];
    const double seen_x = to_x * heading_z - to_z * heading_x;
    const double seen_z = to_x * heading_x + to_z * heading_z;
    const double beyond_x = std::fabs(seen_x) - of.wall_half[wall];
    const double beyond_z = std::fabs(seen_z) - of.wall_half[of.n_walls + wall];
    if (!(beyond_x < reach && beyond_z < reach)) return;
    const double outside_x = std::max(beyond_x, 0.0), outside_z = std::max(beyond_z, 0.0);
    const double distance = std::sqrt(outside_x * outside_x + outside_z * outside_z);
    // From the nearest point of the wall, or out of the nearest face.
    const bool is_inside = distance == 0.0, is_x = beyond_x > beyond_z;
    double out_x = std::copysign(is_inside ? (is_x ? 1.0 : 0.0) : outside_x, seen_x);
    double out_z = std::copysign(is_inside ? (is_x ? 0.0 : 1.0) : outside_z, seen_z);
    const double gap =
        (is_inside ? std::max(beyond_x, beyond_z) : distance) - of.radius[disc];
    if (!(gap < TOUCH_M)) return;
    const double length = std::sqrt(out_x * out_x + out_z * out_z);
    out_x /= length;
    out_z /= length;
    const double into_x = -(heading_x * out_z + heading_z * out_x);
    const double into_z = -(heading_z * out_z - heading_x * out_x);
    area.contacts.push_back(
        make_contact(of, disc, of.n_discs, into_x, into_z, gap, area.discs.data()));
}

void meet_walls(const Circles &of, int64_t index, Area &area) {
    const int64_t n = of.n_areas, axis = of.n_discs * n;
    const auto is_clear = [&](int64_t disc) {
        const double *const place = of.position + disc * n + index;
        const double reach = of.radius[disc] + TOUCH_M;
        return !(std::fabs(place[0]) + reach > of.clear[0]) &&
               !(std::fabs(place[axis]) + reach > of.clear[1]);
    };
    bool are_clear = true;
    for (int64_t disc = 0; disc < of.n_discs; ++disc) are_clear = are_clear && is_clear(disc);
    if (are_clear) return;
    for (int64_t wall = 0; wall < of.n_walls; ++wall)
        for (int64_t disc = 0; disc < of.n_discs; ++disc) {
            const double *const place = of.position + disc * n + index;
            if (!is_clear(disc)) meet_wall(of, disc, place[0], place[axis], wall, area);
        }
}

// Moves the discs of an area by a step.
void move_area(const Circles &of, int64_t index, Area &area) {
    const int64_t n = of.n_areas, axis = of.n_discs * n;
    std::vector<Disc> &discs = area.discs;
    load(of, index, discs);
    area.contacts.clear();
    meet_discs(of, index, area);
    meet_walls(of, index, area);
    // What touches nothing but the floor is settled at once.
    const int first = area.contacts.empty() ? ITERATIONS - 1 : 0;
    for (int iteration = first; iteration < ITERATIONS; ++iteration) {
        const bool rubs = iteration >= ITERATIONS - RUBBING;
        for (Contact &contact : area.contacts)
            settle(contact, discs.data(), contact.wanted[0], of.friction, rubs);
        for (int64_t k = 0; k < of.n_discs; ++k) press(of, k, discs[k], of.rise[k], rubs);
    }
    for (int64_t k = 0; k < of.n_discs; ++k) {
        of.position[k * n + index] += discs[k].vx * STEP_S;
        of.position[axis + k * n + index] += discs[k].vz * STEP_S;
    }
    for (Contact &contact : area.contacts)
        settle(contact, discs.data(), contact.wanted[1], of.friction, true);
    for (int64_t k = 0; k < of.n_discs; ++k) {
        press(of, k, discs[k], 0.0, true);
        const int64_t i = k * n + index;
        of.velocity[i] = discs[k].vx;
        of.velocity[axis + i] = discs[k].vz;
        of.spin[i] = discs[k].spin_x;
        of.spin[axis + i] = discs[k].spin_z;
        of.spin[2 * axis + i] = discs[k].spin_y;
    }
}

void move_all(const Circles &of, Area &area) {
    area.discs.resize(static_cast<size_t>(of.n_discs + 1));
    for (int64_t index = 0; index < of.n_areas; ++index) move_area(of, index, area);
}

void steer(const Field &field) {
    const int64_t n = field.discs->n_areas, players = field.n_players * n;
    double *const speed_x = field.discs->velocity, *const speed_z = speed_x + players + n;
    double *const heading_x = field.heading, *const heading_z = heading_x + players;
    for (int64_t i = 0; i < players; ++i) {
        const double x = heading_x[i], z = heading_z[i];
        const double forward = field.forward[i], right = field.right[i];
        speed_x[i] += x * forward + z * right;
        speed_z[i] += z * forward - x * right;
        heading_x[i] = x * field.cosine[i] + z * field.sine[i];
        heading_z[i] = z * field.cosine[i] - x * field.sine[i];
    }
}

// Moves all by a step; returns whether a ball is in a goal.
bool move_field(const Field &field, Area &area) {
    const Circles &of = *field.discs;
    const int64_t n = of.n_areas, ball = field.n_players * n, axis = of.n_discs * n;
    for (int64_t i = 0; i < n; ++i) {
        of.velocity[ball + i] += field.kick[i];
        of.velocity[axis + ball + i] += field.kick[n + i];
    }
    move_all(of, area);
    bool is_in_goal = false;
    for (int64_t i = 0; i < n; ++i) {
        double x = 0.0, z = 0.0;
        for (int64_t player = 0; player < field.n_players; ++player) {
            const int64_t at = player * n + i, pair = field.at_ball[player];
            const bool touches = of.touching[pair * n + i], begins = touches && !field.touched[at];
            field.touched[at] = touches;
            field.touches[at] += begins;
            if (!begins || !field.kicks[at]) continue;
            x += of.normal[pair * n + i];
            z += of.normal[(of.n_pairs + pair) * n + i];
        }
        field.kick[i] = field.kick_m_s * x;
        field.kick[n + i] = field.kick_m_s * z;
        field.age[i] += 1;
        is_in_goal |= std::fabs(of.position[ball + i]) > field.goal_at_m &&
                      std::fabs(of.position[axis + ball + i]) < field.goal_half_m;
    }
    return is_in_goal;
}

}  // namespace

NATIVE_EXPORT int circles_version() { return 1; }

// Moves all discs by a step. Returns 0, or -1 if there was no memory.
NATIVE_EXPORT int circles_move(const Circles *circles) {
    return static_cast<int>(or_minus_one([&] {
        Area area;
        move_all(*circles, area);
        return 0;
    }));
}

NATIVE_EXPORT void field_steer(const Field *field) { steer(*field); }

// Moves players and balls by a step. Returns 0, or -1 if there was no memory.
NATIVE_EXPORT int field_move(const Field *field) {
    return static_cast<int>(or_minus_one([&] {
        Area area;
        move_field(*field, area);
        return 0;
    }));
}

// Runs steps up to one in which a ball is in a goal. Returns their number, or -1 if there was no
// memory.
NATIVE_EXPORT int64_t field_run(const Field *field, int64_t most_steps) {
    return or_minus_one([&] {
        Area area;
        for (int64_t step = 0; step < most_steps; ++step) {
            steer(*field);
            if (move_field(*field, area)) return step + 1;
        }
        return most_steps;
    });
}
