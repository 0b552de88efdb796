// Boxes on a floor that turn when they are pushed beside their middle: `mlagents_sim/turning.py`
// and `pushers.py`, which explain what is computed and are the reference. The same operations
// follow each other here, so that results are equal to the last bit. This needs -ffp-contract=off.
#include "turning.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "contact.h"
#include "exports.h"
#include "unfused.h"

namespace {

constexpr double SLOWEST_M_S = 1e-9;
constexpr double NARROWEST_M = 1e-9, SAME_POINT_M = 1e-6;
constexpr double LARGEST_TURN = 0.5;
constexpr int ITERATIONS = 6, RUBBING = 3;
constexpr double INF = std::numeric_limits<double>::infinity();

inline double clipped(double value, double low, double high) {
    return std::min(std::max(value, low), high);
}

struct Vector {
    double x, z;
};

inline Vector operator*(Vector a, double by) { return {a.x * by, a.z * by}; }
inline Vector operator-(Vector a, Vector b) { return {a.x - b.x, a.z - b.z}; }
inline double dot(Vector a, Vector b) { return a.x * b.x + a.z * b.z; }
inline Vector to_left(Vector way) { return {-way.z, way.x}; }
inline double lever(Vector arm, Vector way) { return arm.z * way.x - arm.x * way.z; }

// Components to the right of a heading, and forward.
inline Vector in_frame(Vector heading, Vector v) {
    return {v.x * heading.z - v.z * heading.x, v.x * heading.x + v.z * heading.z};
}

// Corners of a box from its center.
inline void find_corners(Vector heading, Vector half, Vector corners[4]) {
    constexpr double RIGHT[4] = {-1.0, 1.0, 1.0, -1.0}, AHEAD[4] = {-1.0, -1.0, 1.0, 1.0};
    for (int k = 0; k < 4; ++k) {
        const double right = RIGHT[k] * half.x, ahead = AHEAD[k] * half.z;
        corners[k] = {heading.x * ahead + heading.z * right, heading.z * ahead - heading.x * right};
    }
}

// Indices of the two smallest of four values, the smallest first.
inline void two_smallest(const double values[4], int found[2]) {
    found[0] = 0;
    for (int k = 1; k < 4; ++k)
        if (values[k] < values[found[0]]) found[0] = k;
    found[1] = found[0] == 0 ? 1 : 0;
    for (int k = found[1] + 1; k < 4; ++k)
        if (k != found[0] && values[k] < values[found[1]]) found[1] = k;
}

struct Body {
    Vector place, heading, half;
    double vx, vz, spin;
    bool is_solid, is_active;  // active: it moves or touches something
};

// Two points of contact of two bodies. The second may be what never moves.
struct Contact {
    int64_t a, b;
    Vector way[2];  // from the first body to the second, and to the left of that
    double lightness[2];
    double levers[2][2][2], turns[2][2][2];  // [way][point][body]
    double parts[2][2];                      // [way][point]
    double wanted[2][2];                     // [phase][point]
    double pushed[2], rubbed[2];             // [point]
};

// What two points of contact look like before masses count.
struct Points {
    Vector normal, arms[2][2];  // [body][point]
    double gaps[2];
};

Contact make_contact(const TurningBoxes &of, int64_t a, int64_t b, const Points &points) {
    Contact contact;
    contact.a = a;
    contact.b = b;
    contact.way[0] = points.normal;
    contact.way[1] = to_left(points.normal);
    const int64_t bodies[2] = {a, b};
    for (int body = 0; body < 2; ++body) contact.lightness[body] = of.lightness[bodies[body]];
    const double both = contact.lightness[0] + contact.lightness[1];
    for (int way = 0; way < 2; ++way)
        for (int point = 0; point < 2; ++point) {
            double turned[2];
            for (int body = 0; body < 2; ++body) {
                const double its = lever(points.arms[body][point], contact.way[way]);
                contact.levers[way][point][body] = its;
                contact.turns[way][point][body] = its * of.turning[bodies[body]];
                turned[body] = contact.turns[way][point][body] * its;
            }
            contact.parts[way][point] = 1.0 / (both + (turned[0] + turned[1]));
        }
    for (int point = 0; point < 2; ++point) {
        const double gap = points.gaps[point];
        const double in_step = std::min(std::min(gap, 1.0) * CLOSING_PER_S, PUSH_OUT_M_S);
        contact.wanted[0][point] = gap < TOUCH_M ? in_step : -INF;
        contact.wanted[1][point] = gap < TOUCH_M ? std::min(in_step, 0.0) : -INF;
        contact.pushed[point] = contact.rubbed[point] = 0.0;
    }
    return contact;
}

// Speed at which two bodies part at a point, in a direction.
inline double parting(const Body &a, const Body &b, Vector way, const double levers[2]) {
    const double first = a.vx * way.x + a.vz * way.z + a.spin * levers[0];
    const double second = b.vx * way.x + b.vz * way.z + b.spin * levers[1];
    return second - first;
}

inline void change(Body &body, double push, double lightness, Vector way, double turns) {
    const double by = push * lightness;
    body.vx += by * way.x;
    body.vz += by * way.z;
    body.spin += push * turns;
}

// Pushes two bodies apart and applies their friction.
void settle(Contact &of, Body *bodies, int phase, double friction, bool rubs) {
    Body &a = bodies[of.a], &b = bodies[of.b];
    for (int point = 0; point < 2; ++point) {
        const double speed = parting(a, b, of.way[0], of.levers[0][point]);
        const double push = (of.wanted[phase][point] - speed) * of.parts[0][point];
        const double total = std::max(of.pushed[point] + push, 0.0);
        const double more = total - of.pushed[point];
        change(a, -more, of.lightness[0], of.way[0], of.turns[0][point][0]);
        change(b, more, of.lightness[1], of.way[0], of.turns[0][point][1]);
        of.pushed[point] = total;
    }
    if (!rubs) return;
    const double limit = friction * (of.pushed[0] + of.pushed[1]);
    for (int point = 0; point < 2; ++point) {
        const double speed = parting(a, b, of.way[1], of.levers[1][point]);
        const double taken = of.rubbed[point];
        const double total = clipped(taken - speed * of.parts[1][point], -limit, limit);
        change(a, -(total - taken), of.lightness[0], of.way[1], of.turns[1][point][0]);
        change(b, total - taken, of.lightness[1], of.way[1], of.turns[1][point][1]);
        of.rubbed[point] = total;
    }
}

// Finds the two points at which a body touches a wall; false if it does not.
bool meet_wall(const TurningBoxes &of, int wall, const Body &body, Points &points) {
    constexpr Vector OUTWARD[4] = {{-1.0, 0.0}, {1.0, 0.0}, {0.0, -1.0}, {0.0, 1.0}};
    const double side = wall % 2 ? 1.0 : -1.0;
    const double place = side * (wall < 2 ? body.place.x : body.place.z);
    Vector corners[4];
    find_corners(body.heading, body.half, corners);
    double seen[4], most = -INF;
    for (int k = 0; k < 4; ++k) {
        seen[k] = -side * (wall < 2 ? corners[k].x : corners[k].z);  // below 0: outward
        most = std::max(most, -seen[k]);
    }
    if (!(of.walls[wall] - place - most < TOUCH_M)) return false;
    int outermost[2];
    two_smallest(seen, outermost);
    points.normal = OUTWARD[wall];
    for (int point = 0; point < 2; ++point) {
        points.gaps[point] = of.walls[wall] - place - -seen[outermost[point]];
        points.arms[0][point] = corners[outermost[point]];
        points.arms[1][point] = {0.0, 0.0};
    }
    return true;
}

// Finds the two points at which two bodies touch; false if they do not.
bool meet(const Body &a, const Body &b, Points &points) {
    const Vector apart = b.place - a.place;
    const Body *const bodies[2] = {&a, &b};
    const Vector seen[2] = {in_frame(a.heading, apart), in_frame(b.heading, apart * -1.0)};
    const Vector facing = in_frame(a.heading, b.heading);
    const double turned_x = std::fabs(facing.x), turned_z = std::fabs(facing.z);
    double gaps[4];  // right of a, right of b, ahead of a, ahead of b
    for (int k = 0; k < 2; ++k) {
        const Vector half = bodies[k]->half, other = bodies[1 - k]->half;
        gaps[k] = std::fabs(seen[k].x) - half.x - (turned_z * other.x + turned_x * other.z);
        gaps[2 + k] = std::fabs(seen[k].z) - half.z - (turned_x * other.x + turned_z * other.z);
    }
    const int widest = static_cast<int>(std::max_element(gaps, gaps + 4) - gaps);
    if (!(gaps[widest] < TOUCH_M)) return false;

    const bool is_ahead = widest >= 2;
    const int with_face = widest % 2;
    const Body &mine = *bodies[with_face], &theirs = *bodies[1 - with_face];
    const double side = std::copysign(1.0, is_ahead ? seen[with_face].z : seen[with_face].x);
    const Vector right = {mine.heading.z, -mine.heading.x};
    const Vector out = (is_ahead ? mine.heading : right) * side, aside = to_left(out);
    const double depth = is_ahead ? mine.half.z : mine.half.x;
    const double width = is_ahead ? mine.half.x : mine.half.z;
    const double sign = with_face == 0 ? 1.0 : -1.0;
    const Vector to_other = apart * sign;
    Vector corners[4];
    find_corners(theirs.heading, theirs.half, corners);
    double inward[4];
    for (int k = 0; k < 4; ++k) inward[k] = dot(corners[k], out);
    int edge[2];
    two_smallest(inward, edge);
    double along[2], away[2];
    for (int k = 0; k < 2; ++k) {
        const Vector end = {corners[edge[k]].x + to_other.x, corners[edge[k]].z + to_other.z};
        along[k] = dot(end, aside);
        away[k] = dot(end, out);
    }
    // The part of the edge before the face.
    double span = along[1] - along[0];
    if (std::fabs(span) < NARROWEST_M) span = NARROWEST_M;
    double at[2];
    for (int k = 0; k < 2; ++k) {
        const double cut = clipped(along[k], -width, width);
        const double part = clipped((cut - along[0]) / span, 0.0, 1.0);
        const double its_away = away[0] + part * (away[1] - away[0]);
        at[k] = along[0] + part * span;
        points.gaps[k] = its_away - depth;
        const Vector point = {out.x * its_away + aside.x * at[k], out.z * its_away + aside.z * at[k]};
        points.arms[with_face][k] = point;
        points.arms[1 - with_face][k] = point - to_other;
    }
    // Where both ends were cut to the same point there is one contact.
    if (std::fabs(at[1] - at[0]) < SAME_POINT_M) points.gaps[1] = INF;
    points.normal = out * sign;
    return true;
}

// Friction of a box with the floor: what each anchor has taken so far, along two directions.
struct Floor {
    int64_t body;
    double limit, turns;
    Vector way[2];
    double levers[4], parts[4], taken[4];  // [anchor and way]
};

Floor stand_on_floor(const TurningBoxes &of, const Body &body, int64_t index, double limit) {
    Floor floor;
    floor.body = index;
    floor.limit = limit;
    floor.turns = of.turns[index];
    const double speed = std::sqrt(body.vx * body.vx + body.vz * body.vz);
    const double divisor = speed + TINY;
    floor.way[0] = speed > SLOWEST_M_S ? Vector{body.vx / divisor, body.vz / divisor} : body.heading;
    floor.way[1] = to_left(floor.way[0]);
    Vector corners[4];
    find_corners(body.heading, body.half, corners);
    for (int row = 0; row < 4; ++row) {
        const Vector arm = corners[2] * (row < 2 ? 1.0 : -1.0);
        floor.levers[row] = lever(arm, floor.way[row % 2]);
        floor.parts[row] = 1.0 / (1.0 + floor.turns * floor.levers[row] * floor.levers[row]);
        floor.taken[row] = 0.0;
    }
    return floor;
}

void rub(Floor &floor, Body &body) {
    for (int row = 0; row < 4; ++row) {
        const Vector way = floor.way[row % 2];
        const double its_lever = floor.levers[row];
        const double slip = body.vx * way.x + body.vz * way.z + body.spin * its_lever;
        const double total =
            clipped(floor.taken[row] + slip * floor.parts[row], -floor.limit, floor.limit);
        const double taken = total - floor.taken[row];
        floor.taken[row] = total;
        body.vx -= taken * way.x;
        body.vz -= taken * way.z;
        body.spin -= taken * its_lever * floor.turns;
    }
}

// Turns a heading by an angle of at most half a radian, by the series of sine and cosine.
Vector turned(Vector heading, double angle) {
    const double a = clipped(angle, -LARGEST_TURN, LARGEST_TURN), s = a * a;
    const double sine =
        a * (1.0 - s / 6.0 * (1.0 - s / 20.0 * (1.0 - s / 42.0 * (1.0 - s / 72.0))));
    const double cosine =
        1.0 - s / 2.0 * (1.0 - s / 12.0 * (1.0 - s / 30.0 * (1.0 - s / 56.0 * (1.0 - s / 90.0))));
    return {heading.x * cosine + heading.z * sine, heading.z * cosine - heading.x * sine};
}

// Memory for the boxes of an area.
struct Area {
    std::vector<Body> bodies;  // B + 1: one more stands for what never moves
    std::vector<Contact> contacts;
    std::vector<Floor> floors;
};

void load(const TurningBoxes &of, int64_t area, std::vector<Body> &bodies) {
    const int64_t n = of.n_areas, axis = of.n_boxes * n;
    for (int64_t k = 0; k < of.n_boxes; ++k) {
        const int64_t i = k * n + area;
        Body &body = bodies[k];
        body.is_solid = of.is_solid[i];
        const double solid = body.is_solid ? 1.0 : 0.0;
        body.place = {of.position[i], of.position[axis + i]};
        body.heading = {of.heading[i], of.heading[axis + i]};
        body.half = {of.half[k], of.half[of.n_boxes + k]};
        body.vx = of.velocity[i] * of.kept[k] * solid;
        body.vz = of.velocity[axis + i] * of.kept[k] * solid;
        body.spin = of.spin[i] * of.spin_kept[k] * solid;
        body.is_active = body.vx != 0.0 || body.vz != 0.0 || body.spin != 0.0;
    }
    bodies[of.n_boxes] = {};
}

// Finds the contacts of an area, in the order in which they are settled.
void find_contacts(const TurningBoxes &of, Area &area) {
    std::vector<Body> &bodies = area.bodies;
    Points points;
    area.contacts.clear();
    const auto add = [&](int64_t a, int64_t b) {
        bodies[a].is_active = bodies[b].is_active = true;
        area.contacts.push_back(make_contact(of, a, b, points));
    };
    for (int64_t pair = of.n_pairs - 1; pair >= 0; --pair) {
        const int64_t a = of.pairs[pair], b = of.pairs[of.n_pairs + pair];
        const Vector apart = bodies[b].place - bodies[a].place;
        if (std::max(std::fabs(apart.x), std::fabs(apart.z)) < of.reach[pair] &&
            bodies[a].is_solid && bodies[b].is_solid && meet(bodies[a], bodies[b], points))
            add(a, b);
    }
    for (int wall = 3; wall >= 0; --wall)
        for (int64_t k = of.n_boxes - 1; k >= 0; --k) {
            const double place = wall < 2 ? bodies[k].place.x : bodies[k].place.z;
            const double gap = of.walls[wall] - (wall % 2 ? place : -place);
            // No corner is farther out than the radius, but for a rounding error.
            if (gap < of.radius[k] + 2.0 * TOUCH_M && bodies[k].is_solid &&
                meet_wall(of, wall, bodies[k], points))
                add(k, of.n_boxes);
        }
}

// Moves the boxes of an area by a step.
void move_area(const TurningBoxes &of, int64_t index, Area &area) {
    const int64_t n = of.n_areas, axis = of.n_boxes * n;
    std::vector<Body> &bodies = area.bodies;
    load(of, index, bodies);
    find_contacts(of, area);
    area.floors.clear();
    for (int64_t k = 0; k < of.n_boxes; ++k)
        if (bodies[k].is_active)
            area.floors.push_back(stand_on_floor(of, bodies[k], k, of.floor[k * n + index]));
    for (int iteration = 0; iteration < ITERATIONS; ++iteration) {
        const bool rubs = iteration >= ITERATIONS - RUBBING;
        for (Contact &contact : area.contacts) settle(contact, bodies.data(), 0, of.friction, rubs);
        if (!rubs) continue;
        for (Floor &floor : area.floors) rub(floor, bodies[floor.body]);
    }
    for (const Floor &floor : area.floors) {
        Body &body = bodies[floor.body];
        const int64_t i = floor.body * n + index;
        of.position[i] += body.vx * STEP_S;
        of.position[axis + i] += body.vz * STEP_S;
        const Vector heading = turned(body.heading, body.spin * STEP_S);
        of.heading[i] = heading.x;
        of.heading[axis + i] = heading.z;
    }
    for (Contact &contact : area.contacts) settle(contact, bodies.data(), 1, of.friction, true);
    for (Floor &floor : area.floors) rub(floor, bodies[floor.body]);
    for (int64_t k = 0; k < of.n_boxes; ++k) {
        const int64_t i = k * n + index;
        of.velocity[i] = bodies[k].vx;
        of.velocity[axis + i] = bodies[k].vz;
        of.spin[i] = bodies[k].spin;
    }
}

void move_all(const TurningBoxes &of, Area &area) {
    area.bodies.resize(static_cast<size_t>(of.n_boxes + 1));
    for (int64_t index = 0; index < of.n_areas; ++index) move_area(of, index, area);
}

void steer(const Pushers &pushers) {
    const TurningBoxes &of = *pushers.boxes;
    const int64_t n = of.n_areas, axis = of.n_boxes * n;
    const int64_t first = (of.n_boxes - pushers.n_members) * n;
    for (int64_t k = 0; k < pushers.n_members * n; ++k) {
        const int64_t i = first + k;
        const double x = of.heading[i], z = of.heading[axis + i];
        const double forward = pushers.forward[k], right = pushers.right[k];
        of.velocity[i] += x * forward + z * right;
        of.velocity[axis + i] += z * forward - x * right;
        of.heading[i] = x * pushers.cosine[k] + z * pushers.sine[k];
        of.heading[axis + i] = z * pushers.cosine[k] - x * pushers.sine[k];
    }
}

// Marks the watched boxes that are beyond the line; returns whether there are any.
bool arrive(const Pushers &pushers) {
    const TurningBoxes &of = *pushers.boxes;
    const int64_t n = of.n_areas, axis = of.n_boxes * n;
    bool is_any = false;
    for (int64_t k = 0; k < pushers.n_watched; ++k)
        for (int64_t i = k * n; i < (k + 1) * n; ++i) {
            const double reach = std::fabs(of.heading[i]) * of.half[k] +
                                 std::fabs(of.heading[axis + i]) * of.half[of.n_boxes + k];
            const bool is_in = of.position[axis + i] - reach < pushers.line && of.is_solid[i];
            pushers.arrived[i] = is_in;
            is_any |= is_in;
        }
    return is_any;
}

}  // namespace

NATIVE_EXPORT int turning_version() { return 1; }

// Runs steps up to one in which a watched box arrives. Returns their number, or -1 if there was no
// memory.
NATIVE_EXPORT int64_t turning_run(const Pushers *pushers, int64_t most_steps) {
    return or_minus_one([&] {
        Area area;
        for (int64_t step = 0; step < most_steps; ++step) {
            steer(*pushers);
            move_all(*pushers->boxes, area);
            if (arrive(*pushers)) return step + 1;
        }
        return most_steps;
    });
}

NATIVE_EXPORT void turning_steer(const Pushers *pushers) { steer(*pushers); }

// Moves all boxes by a step. Returns 0, or -1 if there was no memory.
NATIVE_EXPORT int turning_move(const TurningBoxes *boxes) {
    return static_cast<int>(or_minus_one([&] {
        Area area;
        move_all(*boxes, area);
        return 0;
    }));
}
