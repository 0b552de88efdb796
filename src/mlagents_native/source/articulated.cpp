// Creatures of bodies and joints: the fast form of mlagents_sim/articulated/reference.py, which
// explains the method. Names and order of the computation are the same.
//
// Several creatures are computed in parallel, one in each lane of a processor's wide registers.
// Lanes are independent, so results depend neither on other creatures nor on the number of threads.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <system_error>
#include <thread>
#include <vector>

#include "exports.h"

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 8;
#elif defined(__AVX2__)
constexpr int LANES = 4;
#else
constexpr int LANES = 2;
#endif

// Numbers and truth values, one for each lane.
#if defined(__GNUC__) || defined(__clang__)
typedef double Numbers __attribute__((vector_size(LANES * 8)));
typedef int64_t Truths __attribute__((vector_size(LANES * 8)));
inline Numbers all(double value) { return Numbers{} + value; }
inline Numbers choose(Truths is, Numbers yes, Numbers no) { return is ? yes : no; }
#else
struct Truths {
    int64_t of[LANES];
    int64_t &operator[](int i) { return of[i]; }
    int64_t operator[](int i) const { return of[i]; }
};
struct Numbers {
    double of[LANES];
    double &operator[](int i) { return of[i]; }
    double operator[](int i) const { return of[i]; }
};
inline Numbers all(double value) {
    Numbers r;
    for (double &x : r.of) x = value;
    return r;
}
#define BINARY(RESULT, TYPE, OP, EXPRESSION)          \
    inline RESULT operator OP(TYPE a, TYPE b) {       \
        RESULT r;                                     \
        for (int i = 0; i < LANES; ++i) r[i] = EXPRESSION; \
        return r;                                     \
    }
BINARY(Numbers, Numbers, +, a[i] + b[i])
BINARY(Numbers, Numbers, -, a[i] - b[i])
BINARY(Numbers, Numbers, *, a[i] * b[i])
BINARY(Numbers, Numbers, /, a[i] / b[i])
BINARY(Truths, Numbers, <, -int64_t(a[i] < b[i]))
BINARY(Truths, Numbers, >, -int64_t(a[i] > b[i]))
BINARY(Truths, Numbers, <=, -int64_t(a[i] <= b[i]))
BINARY(Truths, Truths, &, a[i] & b[i])
BINARY(Truths, Truths, |, a[i] | b[i])
inline Truths operator~(Truths a) {
    for (int i = 0; i < LANES; ++i) a[i] = ~a[i];
    return a;
}
inline Numbers operator-(Numbers a) { return all(0.0) - a; }
inline Numbers &operator+=(Numbers &a, Numbers b) { return a = a + b; }
inline Numbers &operator-=(Numbers &a, Numbers b) { return a = a - b; }
inline Numbers choose(Truths is, Numbers yes, Numbers no) {
    for (int i = 0; i < LANES; ++i) no[i] = is[i] ? yes[i] : no[i];
    return no;
}
#endif

inline Numbers smaller(Numbers a, Numbers b) { return choose(a < b, a, b); }
inline Numbers larger(Numbers a, Numbers b) { return choose(a > b, a, b); }
inline Numbers root(Numbers a) {
    for (int i = 0; i < LANES; ++i) a[i] = std::sqrt(a[i]);
    return a;
}
inline Numbers size(Numbers a) { return choose(a < all(0.0), -a, a); }
inline Numbers with_sign(Numbers a, Numbers sign) {
    for (int i = 0; i < LANES; ++i) a[i] = std::copysign(a[i], sign[i]);
    return a;
}
inline bool any(Truths a) {
    int64_t some = 0;
    for (int i = 0; i < LANES; ++i) some |= a[i];
    return some != 0;
}
// a / b, or 0 where b is too small for any motion.
inline Numbers divided(Numbers a, Numbers b) {
    const Truths is_large = b > all(1e-12);
    return choose(is_large, a / choose(is_large, b, all(1.0)), all(0.0));
}

struct Vector {
    Numbers x, y, z;
};
inline Vector operator+(Vector a, Vector b) { return {a.x + b.x, a.y + b.y, a.z + b.z}; }
inline Vector operator-(Vector a, Vector b) { return {a.x - b.x, a.y - b.y, a.z - b.z}; }
inline Vector operator-(Vector a) { return {-a.x, -a.y, -a.z}; }
inline Vector operator*(Numbers s, Vector a) { return {s * a.x, s * a.y, s * a.z}; }
inline Numbers dot(Vector a, Vector b) { return a.x * b.x + a.y * b.y + a.z * b.z; }
inline Vector cross(Vector a, Vector b) {
    return {a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}
inline Vector choose(Truths is, Vector yes, Vector no) {
    return {choose(is, yes.x, no.x), choose(is, yes.y, no.y), choose(is, yes.z, no.z)};
}
inline Vector spread(const double *v) { return {all(v[0]), all(v[1]), all(v[2])}; }
inline Vector none() { return {all(0.0), all(0.0), all(0.0)}; }

struct Rotation {
    Numbers x, y, z, w;
};
inline Vector part(Rotation q) { return {q.x, q.y, q.z}; }
inline Rotation conjugate(Rotation q) { return {-q.x, -q.y, -q.z, q.w}; }
inline Rotation operator-(Rotation q) { return {-q.x, -q.y, -q.z, -q.w}; }
inline Rotation multiply(Rotation a, Rotation b) {
    const Vector v = a.w * part(b) + b.w * part(a) + cross(part(a), part(b));
    return {v.x, v.y, v.z, a.w * b.w - dot(part(a), part(b))};
}
inline Vector rotate(Rotation q, Vector v) {
    const Vector across = all(2.0) * cross(part(q), v);
    return v + q.w * across + cross(part(q), across);
}
inline Numbers dot(Rotation a, Rotation b) {
    return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}
inline Rotation normalized(Rotation q) {
    const Numbers scale = all(1.0) / root(dot(q, q));
    return {q.x * scale, q.y * scale, q.z * scale, q.w * scale};
}
inline Rotation nearer(Rotation q, Rotation other) {
    const Truths is_far = dot(q, other) < all(0.0);
    return {choose(is_far, -q.x, q.x), choose(is_far, -q.y, q.y), choose(is_far, -q.z, q.z),
            choose(is_far, -q.w, q.w)};
}
inline Rotation spread_rotation(const double *q) {
    return {all(q[0]), all(q[1]), all(q[2]), all(q[3])};
}
const double UNITS[3][3] = {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};
inline Vector unit(int axis) { return spread(UNITS[axis]); }

struct Matrix {
    Vector row[3];
};
inline Vector operator*(const Matrix &m, Vector v) {
    return {dot(m.row[0], v), dot(m.row[1], v), dot(m.row[2], v)};
}

constexpr int ITERATIONS = 12, FRICTION_ITERATIONS = 3, NEWTON_STEPS = 16;
constexpr double MAX_SPIN = 50.0, CONTACT_DISTANCE = 0.02, FRICTION = 0.6, PUSH_OUT = 0.8;
constexpr double SLOW = 0.01, LIMIT_PAD = 0.1, ENDLESS = std::numeric_limits<double>::infinity();
enum Motion { LOCKED, LIMITED, FREE };
enum Shape { SPHERE, CAPSULE, BOX };

double quarter_tangent(double angle) { return std::tan(angle / 4.0); }

// A creature, in the layout of mlagents_sim/articulated/bodies.py.
struct Creature {
    int bodies, joints, pairs;
    const int32_t *child, *parent, *motions, *is_driven;  // of each joint
    const int32_t *shape;                                  // of each body
    const int32_t *pair;
    const double *inverse_mass, *inverse_inertia, *center_of_mass, *drag, *angular_drag;
    const double *radius, *axis, *half;                              // of each body's shape
    const double *child_anchor, *parent_anchor, *child_frame, *parent_frame, *limits;
    double spring, damper, ground, step;
};

struct Bodies {
    std::vector<Vector> velocity, spin, center;
    std::vector<Rotation> rotation;
    std::vector<Matrix> inverse_inertia;
    std::vector<Numbers> inverse_mass;
};

// Members of all rows: see `Row` in rows.py.
struct Demand {
    Numbers gain, bias, steady_bias, impulse;
};

struct Drive {
    Drive() {}  // without zeros, which are never read
    int child, parent;
    Vector angular, added_child, added_parent;
    Numbers kept, largest;
    Demand demand;
};

struct Row {
    Row() {}
    int child, parent;
    Vector linear, angular_child, angular_parent;
    Vector added_child, added_parent, added_child_spin, added_parent_spin;
    Numbers response, error;
    Demand demand;
};

struct Contact {
    int first_press, presses, first_rub, rubs;
};

class Solver {
  public:
    explicit Solver(const Creature &creature) : model(creature) {
        const size_t n = creature.bodies + 1;
        bodies.velocity.resize(n);
        bodies.spin.resize(n);
        bodies.center.resize(n);
        bodies.rotation.resize(n);
        bodies.inverse_inertia.resize(n);
        bodies.inverse_mass.resize(n);
        drives.reserve(3 * creature.joints);
        rows.reserve(9 * creature.joints + 8 * creature.bodies);
    }

    // Advances up to LANES creatures by a step. Copies of the last one fill the remaining lanes.
    void advance(int lanes, double *state, const double *target, const double *max_force,
                 const double *gravity, const double *heaviness, uint8_t *touching) {
        read(lanes, state, gravity, heaviness);
        rows.clear();
        drives.clear();
        contacts.clear();
        joints.clear();
        for (int joint = 0; joint < model.joints; ++joint)
            add_joint(joint, lanes, target, max_force);
        for (int pair = 0; pair < model.pairs; ++pair) add_pair(pair);
        for (int body = 0; body < model.bodies; ++body) {
            const Truths is = add_ground(body);
            for (int lane = 0; lane < lanes; ++lane)
                touching[lane * model.bodies + body] = is[lane] != 0;
        }
        for (int i = 0; i < ITERATIONS; ++i)
            iterate<false>(i >= ITERATIONS - FRICTION_ITERATIONS);
        move();
        for (int i = 0; i < ITERATIONS; ++i) iterate<true>(true);
        write(lanes, state);
    }

  private:
    struct JointRows {
        int first_drive, drives, first_row, locks, limits;
    };

    const Creature &model;
    Bodies bodies;
    std::vector<Row> rows;
    std::vector<Drive> drives;
    std::vector<Contact> contacts;
    std::vector<JointRows> joints;

    void read(int lanes, const double *state, const double *gravity, const double *heaviness) {
        for (int b = 0; b <= model.bodies; ++b) {
            Numbers s[13];
            for (int k = 0; k < 13; ++k) s[k] = all(k == 6 ? 1.0 : 0.0);
            Numbers fall = all(0.0), lightness = all(1.0);
            for (int lane = 0; lane < LANES; ++lane) {
                const int of = std::min(lane, lanes - 1);
                if (b == model.bodies) continue;
                for (int k = 0; k < 13; ++k) s[k][lane] = state[(of * model.bodies + b) * 13 + k];
                fall[lane] = gravity[of] * model.step;
                lightness[lane] = 1.0 / heaviness[of * model.bodies + b];
            }
            const Rotation q = normalized({s[3], s[4], s[5], s[6]});
            bodies.rotation[b] = q;
            bodies.center[b] =
                Vector{s[0], s[1], s[2]} + rotate(q, spread(model.center_of_mass + 3 * b));
            bodies.velocity[b] =
                all(1.0 - model.drag[b] * model.step) * Vector{s[7], s[8] - fall, s[9]};
            const Vector spin =
                all(1.0 - model.angular_drag[b] * model.step) * Vector{s[10], s[11], s[12]};
            const Numbers speed = root(dot(spin, spin));
            bodies.spin[b] = choose(speed > all(MAX_SPIN), all(MAX_SPIN) / larger(speed, all(1.0)),
                                    all(1.0)) *
                             spin;
            Vector axes[3], scaled[3];
            for (int k = 0; k < 3; ++k) {
                axes[k] = rotate(q, unit(k));
                scaled[k] = all(model.inverse_inertia[3 * b + k]) * lightness * axes[k];
            }
            bodies.inverse_mass[b] = all(model.inverse_mass[b]) * lightness;
            Matrix &m = bodies.inverse_inertia[b];
            m.row[0] = axes[0].x * scaled[0] + axes[1].x * scaled[1] + axes[2].x * scaled[2];
            m.row[1] = axes[0].y * scaled[0] + axes[1].y * scaled[1] + axes[2].y * scaled[2];
            m.row[2] = axes[0].z * scaled[0] + axes[1].z * scaled[1] + axes[2].z * scaled[2];
        }
    }

    void write(int lanes, double *state) const {
        for (int b = 0; b < model.bodies; ++b) {
            const Rotation q = bodies.rotation[b];
            const Vector p = bodies.center[b] - rotate(q, spread(model.center_of_mass + 3 * b));
            const Vector v = bodies.velocity[b], w = bodies.spin[b];
            const Numbers s[13] = {p.x, p.y, p.z, q.x, q.y, q.z, q.w,
                                   v.x, v.y, v.z, w.x, w.y, w.z};
            for (int lane = 0; lane < lanes; ++lane)
                for (int k = 0; k < 13; ++k) state[(lane * model.bodies + b) * 13 + k] = s[k][lane];
        }
    }

    void move() {
        for (int b = 0; b < model.bodies; ++b) {
            bodies.center[b] = bodies.center[b] + all(model.step) * bodies.velocity[b];
            const Vector w = bodies.spin[b];
            const Numbers speed = root(dot(w, w));
            Numbers sine, cosine;
            for (int lane = 0; lane < LANES; ++lane) {
                const double half = speed[lane] * model.step / 2.0;
                sine[lane] = speed[lane] > 0.0 ? std::sin(half) / speed[lane] : 0.0;
                cosine[lane] = std::cos(half);
            }
            const Rotation turn = {w.x * sine, w.y * sine, w.z * sine, cosine};
            bodies.rotation[b] = normalized(multiply(turn, bodies.rotation[b]));
        }
    }

    // Rows.

    void respond(Row &row) const {
        const int a = row.child, b = row.parent;
        row.added_child = bodies.inverse_mass[a] * row.linear;
        row.added_parent = bodies.inverse_mass[b] * row.linear;
        row.added_child_spin = bodies.inverse_inertia[a] * row.angular_child;
        row.added_parent_spin = bodies.inverse_inertia[b] * row.angular_parent;
        row.response = answer(row, row);
    }

    static Numbers answer(const Row &row, const Row &other) {
        return dot(row.linear, other.added_child + other.added_parent) +
               dot(row.angular_child, other.added_child_spin) +
               dot(row.angular_parent, other.added_parent_spin);
    }

    // Subtracts a multiple of another row so that neither impulse changes the other's rate. The
    // velocities that an impulse adds are linear in its directions, so they change accordingly.
    static void make_independent(Row &row, const Row &other) {
        const Numbers share = divided(answer(row, other), other.response);
        row.linear = row.linear - share * other.linear;
        row.angular_child = row.angular_child - share * other.angular_child;
        row.angular_parent = row.angular_parent - share * other.angular_parent;
        row.added_child = row.added_child - share * other.added_child;
        row.added_parent = row.added_parent - share * other.added_parent;
        row.added_child_spin = row.added_child_spin - share * other.added_child_spin;
        row.added_parent_spin = row.added_parent_spin - share * other.added_parent_spin;
        row.error = row.error - share * other.error;
        row.response = answer(row, row);
    }

    void demand(Row &row) const {
        row.demand.gain = -divided(all(1.0), row.response);
        row.demand.bias = row.demand.gain * row.error / all(model.step);
        row.demand.steady_bias = row.demand.impulse = all(0.0);
    }

    void demand_at_least_zero(Row &row, Truths acts) const {
        demand(row);
        const Numbers zero = all(0.0);
        row.demand.gain = choose(acts, row.demand.gain, zero);
        row.demand.bias = choose(acts, row.demand.bias, zero);
        row.demand.steady_bias = choose(row.error > zero, row.demand.bias, zero);
    }

    // Joints.

    void add_joint(int joint, int lanes, const double *target, const double *max_force) {
        JointRows of = {int(drives.size()), 0, int(rows.size()), 0, 0};
        const int child = model.child[joint], parent = model.parent[joint];
        const int32_t *motions = model.motions + 3 * joint;
        const Rotation child_frame =
            multiply(bodies.rotation[child], spread_rotation(model.child_frame + 4 * joint));
        const Rotation parent_frame =
            nearer(multiply(bodies.rotation[parent], spread_rotation(model.parent_frame + 4 * joint)),
                   child_frame);
        const Rotation relative = multiply(conjugate(child_frame), parent_frame);

        if (model.is_driven[joint]) {
            Numbers goal[4], force;
            for (int lane = 0; lane < LANES; ++lane) {
                const int at = std::min(lane, lanes - 1) * model.joints + joint;
                for (int k = 0; k < 4; ++k) goal[k][lane] = target[4 * at + k];
                force[lane] = max_force[at];
            }
            const Rotation wanted = nearer({goal[0], goal[1], goal[2], goal[3]}, relative);
            const Rotation remaining = multiply(conjugate(wanted), relative);
            Vector directions[3];
            rate_directions(multiply(child_frame, wanted), remaining, directions);
            const Numbers errors[3] = {-remaining.x, -remaining.y, -remaining.z};
            for (int axis = 0; axis < 3; ++axis)
                if (motions[axis] != LOCKED)
                    add_drive(child, parent, directions[axis], errors[axis], force);
        }
        of.drives = int(drives.size()) - of.first_drive;

        add_locks(motions, child, parent, child_frame, parent_frame, relative);
        const Vector at_parent =
            rotate(bodies.rotation[parent],
                   spread(model.parent_anchor + 3 * joint) - spread(model.center_of_mass + 3 * parent));
        const Vector at_child =
            rotate(bodies.rotation[child],
                   spread(model.child_anchor + 3 * joint) - spread(model.center_of_mass + 3 * child));
        const Vector meeting_point = bodies.center[parent] + at_parent;
        const Vector gap = bodies.center[child] + at_child - meeting_point;
        const Vector from_child = meeting_point - bodies.center[child];
        const Numbers gaps[3] = {gap.x, gap.y, gap.z};
        for (int axis = 0; axis < 3; ++axis)
            add_row(child, parent, unit(axis), cross(from_child, unit(axis)),
                    cross(at_parent, unit(axis)), gaps[axis]);
        of.locks = int(rows.size()) - of.first_row;
        for (int i = of.first_row; i < int(rows.size()); ++i) {
            respond(rows[i]);
            for (int k = of.first_row; k < i; ++k) make_independent(rows[i], rows[k]);
            demand(rows[i]);
        }
        add_limits(joint, of, child_frame, parent_frame, relative);
        of.limits = int(rows.size()) - of.first_row - of.locks;
        joints.push_back(of);
    }

    void add_row(int child, int parent, Vector linear, Vector angular_child, Vector angular_parent,
                 Numbers error) {
        rows.emplace_back();
        Row &row = rows.back();
        row.child = child;
        row.parent = parent;
        row.linear = linear;
        row.angular_child = angular_child;
        row.angular_parent = angular_parent;
        row.error = error;
    }

    void add_drive(int child, int parent, Vector direction, Numbers error, Numbers force) {
        drives.emplace_back();
        Drive &drive = drives.back();
        drive.child = child;
        drive.parent = parent;
        drive.angular = direction;
        drive.added_child = bodies.inverse_inertia[child] * direction;
        drive.added_parent = bodies.inverse_inertia[parent] * direction;
        const Numbers response = dot(direction, drive.added_child) + dot(direction, drive.added_parent);
        const double yielding =
            model.step * model.step * model.spring + model.step * model.damper;
        const Numbers share = all(1.0) / (all(1.0) + all(yielding) * response);
        drive.demand.gain = -share * all(yielding);
        drive.kept = all(1.0) - share;
        drive.demand.bias = -share * all(model.step * model.spring) * error;
        drive.demand.steady_bias = drive.demand.bias;
        drive.demand.impulse = all(0.0);
        drive.largest = force * all(model.step);
    }

    static void rate_directions(Rotation child_frame, Rotation relative, Vector directions[3]) {
        Vector column[3];
        for (int axis = 0; axis < 3; ++axis) {
            const Vector own = rotate(conjugate(child_frame), unit(axis));
            column[axis] = all(0.5) * (relative.w * own + cross(own, part(relative)));
        }
        directions[0] = {column[0].x, column[1].x, column[2].x};
        directions[1] = {column[0].y, column[1].y, column[2].y};
        directions[2] = {column[0].z, column[1].z, column[2].z};
    }

    void add_locks(const int32_t *motions, int child, int parent, Rotation child_frame,
                   Rotation parent_frame, Rotation relative) {
        const bool x = motions[0] == LOCKED, y = motions[1] == LOCKED, z = motions[2] == LOCKED;
        if (!x && y != z) {
            const Vector across = rotate(child_frame, unit(y ? 2 : 1));
            const Vector along = rotate(parent_frame, unit(0));
            const Vector direction = cross(across, along);
            add_row(child, parent, none(), direction, direction, dot(across, along));
            return;
        }
        Vector directions[3];
        rate_directions(child_frame, relative, directions);
        const Numbers errors[3] = {-relative.x, -relative.y, -relative.z};
        for (int axis = 0; axis < 3; ++axis)
            if (motions[axis] == LOCKED)
                add_row(child, parent, none(), directions[axis], directions[axis], errors[axis]);
    }

    void add_limits(int joint, const JointRows &of, Rotation child_frame, Rotation parent_frame,
                    Rotation relative) {
        const int32_t *motions = model.motions + 3 * joint;
        const double *limits = model.limits + 4 * joint;
        const Numbers length = root(relative.x * relative.x + relative.w * relative.w);
        const Truths is_defined = length > all(0.0);
        const Numbers scale =
            choose(is_defined, all(1.0) / choose(is_defined, length, all(1.0)), all(0.0));
        const Rotation twist = {relative.x * scale, all(0.0), all(0.0),
                                choose(is_defined, relative.w * scale, all(1.0))};
        const Rotation swing = multiply(relative, conjugate(twist));
        if (motions[1] == LIMITED && motions[2] == LIMITED)
            add_cone(of, swing, child_frame, limits[2], limits[3]);
        else if (motions[1] == LIMITED)
            add_angle_limits(of, swing.y, swing.w, -limits[2], limits[2], child_frame, 1);
        else if (motions[2] == LIMITED)
            add_angle_limits(of, swing.z, swing.w, -limits[3], limits[3], child_frame, 2);
        if (motions[0] == LIMITED)
            add_angle_limits(of, twist.x, twist.w, limits[0], limits[1], parent_frame, 0);
    }

    void add_limit(const JointRows &of, Vector direction, Numbers room, Truths acts) {
        if (!any(acts)) return;
        add_row(rows[of.first_row].child, rows[of.first_row].parent, none(), direction, direction, room);
        Row &row = rows.back();
        respond(row);
        for (int k = of.first_row; k < of.first_row + of.locks; ++k)
            make_independent(row, rows[k]);
        demand_at_least_zero(row, acts);
    }

    void add_angle_limits(const JointRows &of, Numbers sine, Numbers cosine, double low, double high,
                          Rotation frame, int axis) {
        const Numbers tangent = sine / (all(1.0) + cosine);
        const double pad = quarter_tangent(std::min(LIMIT_PAD, 0.49 * (high - low)));
        const double lowest = quarter_tangent(low), highest = quarter_tangent(high);
        const Vector direction = rotate(frame, unit(axis));
        add_limit(of, -direction, all(4.0) * (tangent - all(lowest)), tangent < all(lowest + pad));
        add_limit(of, direction, all(4.0) * (all(highest) - tangent), tangent > all(highest - pad));
    }

    void add_cone(const JointRows &of, Rotation swing, Rotation child_frame, double largest_y,
                  double largest_z) {
        const double radius_y = quarter_tangent(largest_z), radius_z = quarter_tangent(largest_y);
        const Numbers one = all(1.0), pad = all(quarter_tangent(LIMIT_PAD));
        Numbers tilt_y = swing.z / (one + swing.w), tilt_z = -swing.y / (one + swing.w);
        Numbers far_y = size(tilt_y), far_z = size(tilt_z);
        const Numbers padded_y = (far_y + pad) / (one - far_y * pad) / all(radius_y);
        const Numbers padded_z = (far_z + pad) / (one - far_z * pad) / all(radius_z);
        const Truths acts = padded_y * padded_y + padded_z * padded_z > one;
        if (!any(acts)) return;
        tilt_y = choose(acts, tilt_y, all(radius_y));  // elsewhere, any point outside will do
        tilt_z = choose(acts, tilt_z, all(0.0));
        far_y = size(tilt_y);
        far_z = size(tilt_z);

        const Numbers square_y = all(radius_y * radius_y), square_z = all(radius_z * radius_z);
        Numbers t = larger(all(radius_y) * far_y - square_y, all(radius_z) * far_z - square_z);
        t = larger(t, all(1e-9 - std::min(radius_y * radius_y, radius_z * radius_z)));
        for (int i = 0; i < NEWTON_STEPS; ++i) {
            const Numbers from_y = all(radius_y) * far_y / (t + square_y);
            const Numbers from_z = all(radius_z) * far_z / (t + square_z);
            const Numbers value = from_y * from_y + from_z * from_z - one;
            const Numbers slope = all(-2.0) * (from_y * from_y / (t + square_y) +
                                               from_z * from_z / (t + square_z));
            const Truths falls = slope < all(0.0);
            t = t - choose(falls, value / choose(falls, slope, all(-1.0)), all(0.0));
        }
        const Numbers y = with_sign(square_y * far_y / (t + square_y), tilt_y);
        const Numbers z = with_sign(square_z * far_z / (t + square_z), tilt_z);
        Numbers normal_y = y / square_y, normal_z = z / square_z;
        const Numbers length = root(normal_y * normal_y + normal_z * normal_z);
        normal_y = normal_y / length;
        normal_z = normal_z / length;
        const Numbers square = y * y + z * z, scale = one / (one + square);
        const Numbers scale2 = scale * scale, scale3 = scale2 * scale;
        const Numbers tilt = all(4.0) * (one - square) * scale2;
        const Vector along = {one - all(8.0) * square * scale2, tilt * y, tilt * z};
        const Numbers growth = all(2.0) * (y * normal_y + z * normal_z);
        const Numbers change = all(-4.0) * growth * scale3 * (all(3.0) - square);
        Vector outward = {all(-8.0) * growth * scale3 * (one - square), tilt * normal_y + change * y,
                          tilt * normal_z + change * z};
        outward = (one / root(dot(outward, outward))) * outward;
        const Vector tilted = rotate(swing, unit(0));
        add_limit(of, rotate(child_frame, cross(along, outward)), -dot(outward, tilted), acts);
    }

    // Contacts.

    void add_press(int a, int b, Vector normal, Vector from_a, Vector from_b, Numbers distance,
                   Truths acts) {
        const Truths is_deep = distance <= all(0.0);
        add_row(a, b, normal, cross(from_a, normal), cross(from_b, normal),
                choose(is_deep, all(PUSH_OUT) * distance, distance));
        respond(rows.back());
        demand_at_least_zero(rows.back(), acts);
    }

    void add_rubs(int a, int b, Vector normal, Vector slip, Vector from_a, Vector from_b,
                  Truths acts) {
        if (!any(acts)) return;
        const Vector sliding = slip - dot(normal, slip) * normal;
        const Truths is_sliding = dot(sliding, sliding) > all(SLOW * SLOW);
        const Numbers zero = all(0.0);
        const Truths is_upright = size(normal.x) < all(std::sqrt(0.5));
        Vector first = choose(is_upright, Vector{zero, -normal.z, normal.y},
                              Vector{-normal.y, normal.x, zero});
        first = choose(is_sliding, sliding, first);
        const Numbers length = root(dot(first, first));
        first = {first.x / length, first.y / length, first.z / length};
        const Vector tangents[2] = {first, cross(normal, first)};
        for (const Vector &direction : tangents) {
            add_row(a, b, direction, cross(from_a, direction), cross(from_b, direction), zero);
            respond(rows.back());
            demand(rows.back());
            rows.back().demand.gain = choose(acts, rows.back().demand.gain, zero);
            rows.back().demand.bias = zero;
        }
    }

    Truths add_ground(int body) {
        const Vector center = bodies.center[body];
        const Rotation q = bodies.rotation[body];
        const int shape = model.shape[body];
        Vector points[4];
        int n = 1;
        const double radius = model.radius[body];
        if (shape == BOX) {
            Vector edges[3];
            Numbers steepness[3];
            for (int k = 0; k < 3; ++k) {
                edges[k] = all(model.half[3 * body + k]) * rotate(q, unit(k));
                steepness[k] = size(edges[k].y) / all(model.half[3 * body + k]);
            }
            const Truths second = steepness[1] > steepness[0];
            const Truths third = (steepness[2] > steepness[0]) & (steepness[2] > steepness[1]);
            const auto pick = [&](int k) {
                return choose(third, edges[(2 + k) % 3],
                              choose(second, edges[(1 + k) % 3], edges[k % 3]));
            };
            const Vector down = pick(0), a = pick(1), b = pick(2);
            const Numbers sign = choose(down.y > all(0.0), all(1.0),
                                        choose(down.y < all(0.0), all(-1.0), all(0.0)));
            const Vector face = center - sign * down;
            points[0] = face + a + b;
            points[1] = face + a - b;
            points[2] = face - a - b;
            points[3] = face - a + b;
            n = 4;
        } else if (shape == CAPSULE) {
            const Vector axis = rotate(q, spread(model.axis + 3 * body));
            points[0] = center + axis;
            points[1] = center - axis;
            n = 2;
        } else {
            points[0] = center;
        }
        Numbers distance[4];
        Truths acts[4], touches = all(0.0) > all(0.0);
        for (int k = 0; k < n; ++k) {
            points[k].y = points[k].y - all(radius);
            distance[k] = points[k].y - all(model.ground);
            acts[k] = distance[k] < all(CONTACT_DISTANCE);
            touches = touches | acts[k];
        }
        if (!any(touches)) return touches;

        const Vector normal = unit(1);
        const int world = model.bodies;
        Contact contact = {int(rows.size()), 0, 0, 0};
        for (int k = 0; k < n; ++k)
            if (any(acts[k]))
                add_press(body, world, normal, points[k] - center, points[k], distance[k], acts[k]);
        contact.presses = int(rows.size()) - contact.first_press;
        contact.first_rub = int(rows.size());
        const Vector slip = bodies.velocity[body];
        if (n < 4) {
            for (int k = 0; k < n; ++k)
                add_rubs(body, world, normal, slip, points[k] - center, points[k], acts[k]);
        } else {
            const Truths diagonal = acts[0] & acts[2], other = acts[1] & acts[3];
            Vector one = points[3], two = points[0];
            Numbers first = all(3.0), last = all(0.0);
            for (int k = 2; k >= 0; --k) {
                one = choose(acts[k], points[k], one);
                first = choose(acts[k], all(k), first);
            }
            for (int k = 1; k < 4; ++k) {
                two = choose(acts[k], points[k], two);
                last = choose(acts[k], all(k), last);
            }
            one = choose(diagonal, points[0], choose(other, points[1], one));
            two = choose(diagonal, points[2], choose(other, points[3], two));
            const Truths differ = diagonal | other | (first < last);
            add_rubs(body, world, normal, slip, one - center, one, touches);
            add_rubs(body, world, normal, slip, two - center, two, touches & differ);
        }
        contact.rubs = int(rows.size()) - contact.first_rub;
        contacts.push_back(contact);
        return touches;
    }

    void add_pair(int pair) {
        const int a = model.pair[2 * pair], b = model.pair[2 * pair + 1];
        const Vector offset = bodies.center[a] - bodies.center[b];
        const double *half_a = model.axis + 3 * a, *half_b = model.axis + 3 * b;
        const double radii = model.radius[a] + model.radius[b] + CONTACT_DISTANCE;
        const double reach = radii + std::sqrt(half_a[0] * half_a[0] + half_a[1] * half_a[1] +
                                               half_a[2] * half_a[2]) +
                             std::sqrt(half_b[0] * half_b[0] + half_b[1] * half_b[1] +
                                       half_b[2] * half_b[2]);
        if (!any(dot(offset, offset) < all(reach * reach))) return;
        const Vector axis_a = rotate(bodies.rotation[a], spread(half_a));
        const Vector axis_b = rotate(bodies.rotation[b], spread(half_b));
        const Numbers aa = dot(axis_a, axis_a), bb = dot(axis_b, axis_b), ab = dot(axis_a, axis_b);
        const Numbers to_a = dot(offset, axis_a), to_b = dot(offset, axis_b);
        const auto clip = [](Numbers x) { return smaller(larger(x, all(-1.0)), all(1.0)); };
        const Numbers first = clip(divided(ab * to_b - bb * to_a, aa * bb - ab * ab));
        const Numbers along_b = clip(divided(ab * first + to_b, bb));
        const Numbers along_a = clip(divided(ab * along_b - to_a, aa));
        const Vector at_b = bodies.center[b] + along_b * axis_b;
        const Vector apart = bodies.center[a] + along_a * axis_a - at_b;
        const Numbers length = root(dot(apart, apart));
        const Numbers distance = length - all(model.radius[a]) - all(model.radius[b]);
        const Truths acts = (distance < all(CONTACT_DISTANCE)) & (length > all(1e-9));
        if (!any(acts)) return;
        const Numbers scale = choose(acts, length, all(1.0));
        const Vector normal = choose(
            acts, Vector{apart.x / scale, apart.y / scale, apart.z / scale}, unit(1));
        const Vector point = at_b + (all(model.radius[b]) + all(0.5) * distance) * normal;
        const Vector from_a = point - bodies.center[a], from_b = point - bodies.center[b];
        Contact contact = {int(rows.size()), 1, int(rows.size()) + 1, 0};
        add_press(a, b, normal, from_a, from_b, distance, acts);
        add_rubs(a, b, normal, bodies.velocity[a] - bodies.velocity[b], from_a, from_b, acts);
        contact.rubs = int(rows.size()) - contact.first_rub;
        contacts.push_back(contact);
    }

    // Iterations.

    Numbers rate(const Row &row) const {
        return dot(row.linear, bodies.velocity[row.child] - bodies.velocity[row.parent]) +
               dot(row.angular_child, bodies.spin[row.child]) -
               dot(row.angular_parent, bodies.spin[row.parent]);
    }

    void push(Row &row, Numbers impulse) {
        const Numbers change = impulse - row.demand.impulse;
        row.demand.impulse = impulse;
        Vector &v = bodies.velocity[row.child], &w = bodies.spin[row.child];
        v = v + change * row.added_child;
        w = w + change * row.added_child_spin;
        if (row.parent == model.bodies) return;  // the world
        Vector &u = bodies.velocity[row.parent], &s = bodies.spin[row.parent];
        u = u - change * row.added_parent;
        s = s - change * row.added_parent_spin;
    }

    template <bool steady>
    void solve_lock(Row &row) {
        Numbers impulse = row.demand.impulse + row.demand.gain * rate(row);
        if (!steady) impulse = impulse + row.demand.bias;
        push(row, impulse);
    }

    template <bool steady>
    void solve_at_least_zero(Row &row) {
        const Numbers bias = steady ? row.demand.steady_bias : row.demand.bias;
        push(row, larger(row.demand.impulse + row.demand.gain * rate(row) + bias, all(0.0)));
    }

    void solve_drive(Drive &drive) {
        Vector &w = bodies.spin[drive.child], &s = bodies.spin[drive.parent];
        Numbers impulse = drive.demand.impulse * drive.kept +
                          drive.demand.gain * dot(drive.angular, w - s) + drive.demand.bias;
        impulse = smaller(larger(impulse, -drive.largest), drive.largest);
        const Numbers change = impulse - drive.demand.impulse;
        drive.demand.impulse = impulse;
        w = w + change * drive.added_child;
        s = s - change * drive.added_parent;
    }

    template <bool steady>
    void iterate(bool has_friction) {
        for (const JointRows &joint : joints) {
            for (int i = 0; i < joint.drives; ++i) solve_drive(drives[joint.first_drive + i]);
            Row *row = rows.data() + joint.first_row;
            for (int i = 0; i < joint.locks; ++i) solve_lock<steady>(*row++);
            for (int i = 0; i < joint.limits; ++i) solve_at_least_zero<steady>(*row++);
        }
        for (const Contact &contact : contacts) {
            Numbers largest = all(0.0);
            for (int i = 0; i < contact.presses; ++i) {
                Row &press = rows[contact.first_press + i];
                solve_at_least_zero<steady>(press);
                largest += press.demand.impulse;
            }
            if (!has_friction) continue;
            largest = all(FRICTION) * largest;
            for (int i = 0; i < contact.rubs; ++i) {
                Row &rub = rows[contact.first_rub + i];
                const Numbers impulse = rub.demand.impulse + rub.demand.gain * rate(rub);
                push(rub, smaller(larger(impulse, -largest), largest));
            }
        }
    }
};

}  // namespace

NATIVE_EXPORT int articulated_version() { return 2; }

// Advances `n` creatures by a step: see `step` in reference.py. `integers` and `numbers` hold the
// creature.
NATIVE_EXPORT void articulated_step(const int32_t *integers, const double *numbers, int64_t n,
                                    double *state, const double *target, const double *max_force,
                                    const double *gravity, const double *heaviness,
                                    uint8_t *touching, int threads) {
    Creature creature = {};
    creature.bodies = integers[0];
    creature.joints = integers[1];
    creature.pairs = integers[2];
    const int32_t *i = integers + 3;
    const auto take_integers = [&](int count) { return (i += count) - count; };
    const double *d = numbers;
    const auto take = [&](int count) { return (d += count) - count; };
    const int b = creature.bodies, j = creature.joints;
    creature.child = take_integers(j);
    creature.parent = take_integers(j);
    creature.motions = take_integers(3 * j);
    creature.is_driven = take_integers(j);
    creature.shape = take_integers(b);
    creature.pair = take_integers(2 * creature.pairs);
    creature.inverse_mass = take(b + 1);
    creature.inverse_inertia = take(3 * (b + 1));
    creature.center_of_mass = take(3 * (b + 1));
    creature.drag = take(b + 1);
    creature.angular_drag = take(b + 1);
    creature.radius = take(b);
    creature.axis = take(3 * b);
    creature.half = take(3 * b);
    creature.child_anchor = take(3 * j);
    creature.parent_anchor = take(3 * j);
    creature.child_frame = take(4 * j);
    creature.parent_frame = take(4 * j);
    creature.limits = take(4 * j);
    creature.spring = *take(1);
    creature.damper = *take(1);
    creature.ground = *take(1);
    creature.step = *take(1);

    const int64_t groups = (n + LANES - 1) / LANES;
    const auto work = [&](int64_t first, int64_t last) {
        Solver solver(creature);
        for (int64_t group = first; group < last; ++group) {
            const int64_t at = group * LANES;
            solver.advance(int(std::min<int64_t>(LANES, n - at)), state + at * b * 13,
                           target + at * j * 4, max_force + at * j, gravity + at,
                           heaviness + at * b, touching + at * b);
        }
    };
    threads = int(std::max<int64_t>(1, std::min<int64_t>(threads, groups)));
    std::vector<std::thread> others;
    for (int k = 1; k < threads; ++k) {
        const int64_t first = groups * k / threads, last = groups * (k + 1) / threads;
        try {
            others.emplace_back(work, first, last);
        } catch (const std::system_error &) {  // no more threads: compute here
            work(first, last);
        }
    }
    work(0, groups / threads);
    for (std::thread &other : others) other.join();
}
