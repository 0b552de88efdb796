// Motion of balls on cubes. The reference is `mlagents_sim/rolling.py`; read that file first.
//
// Every operation and its order are those of NumPy there, so results are bit-identical.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <exception>
#include <vector>

#include "exports.h"
#include "unfused.h"

extern "C" {
struct Rolling {     // n areas; vectors and quaternions are by components
    double *cube;    // (4, n)
    double *ball;    // (3, 3, n): position, velocity, spin
    const double *radius, *inertia, *reach, *fall;  // (n,)
    const double *ways;                             // (2, n)
    const double *turns;                            // (2, 2, 4, n)
    const int64_t *turned_from;                     // (2, 4)
    int64_t n;
    double half_edge, turn_limit, step, touch, push_out, closing_per_s, friction, spin_kept;
    double max_spin, tiny;
};
}

namespace {

// Like NumPy's, these return NaN if one of two numbers is.
inline double larger(double a, double b) { return a >= b || std::isnan(a) ? a : b; }
inline double smaller(double a, double b) { return a <= b || std::isnan(a) ? a : b; }

struct Contact {
    double frame[3][3];  // axes of the contact, in columns; the second is its normal
    double local[3][3];  // position, velocity and spin of the ball by these axes
    double gap;          // between the surfaces, in m
};

// Sets `to` to the matrix product of a and b.
inline void product(const double a[3][3], const double b[3][3], double to[3][3]) {
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j)
            to[i][j] = (a[i][0] * b[0][j] + a[i][1] * b[1][j]) + a[i][2] * b[2][j];
}

void rotation_matrix(double x, double y, double z, double w, double to[3][3]) {
    const double xx = x * x, yy = y * y, zz = z * z, ww = w * w;
    const double xy = x * y, xz = x * z, yz = y * z, xw = x * w, yw = y * w, zw = z * w;
    to[0][0] = (ww + xx) - (yy + zz);
    to[0][1] = (xy - zw) + (xy - zw);
    to[0][2] = (xz + yw) + (xz + yw);
    to[1][0] = (xy + zw) + (xy + zw);
    to[1][1] = (ww + yy) - (xx + zz);
    to[1][2] = (yz - xw) + (yz - xw);
    to[2][0] = (xz - yw) + (xz - yw);
    to[2][1] = (yz + xw) + (yz + xw);
    to[2][2] = (ww + zz) - (xx + yy);
}

// Corrects a contact of a ball that is not above the top face, if it is near an edge.
void turn_to_edge(const Rolling &of, int64_t i, Contact &contact) {
    double arm[3], *const center = contact.local[0];
    for (int axis = 0; axis < 3; ++axis)
        arm[axis] = center[axis] -
                    smaller(larger(center[axis], -of.half_edge), of.half_edge);
    const double distance =
        std::sqrt((arm[0] * arm[0] + arm[1] * arm[1]) + arm[2] * arm[2]);
    contact.gap = distance - of.radius[i];
    if (!(contact.gap < of.touch)) return;
    const double x = arm[0] / distance, y = arm[1] / distance, z = arm[2] / distance;
    const double bend = -1.0 / (1.0 + y), bend_x = bend * x;
    const double edge[3][3] = {{1.0 + bend_x * x, x, bend_x * z},
                               {-x, y, -z},
                               {bend_x * z, z, 1.0 + bend * z * z}};
    double turned[3][3];
    product(contact.frame, edge, turned);
    std::copy(&turned[0][0], &turned[0][0] + 9, &contact.frame[0][0]);
    product(contact.local, edge, turned);
    std::copy(&turned[0][0], &turned[0][0] + 9, &contact.local[0][0]);
}

// Pushes and brakes a ball; its position becomes the velocity of its motion in this step.
void touch(const Rolling &of, int64_t i, Contact &contact) {
    double *const motion = contact.local[0], *const v = contact.local[1];
    double *const spin = contact.local[2];
    const bool touches = contact.gap < of.touch;
    const double closing = smaller(contact.gap * of.closing_per_s, of.push_out);
    const double push = (larger(closing, v[1]) - v[1]) * (touches ? 1.0 : 0.0);
    const double lasting_push = smaller(push, larger(-v[1], 0.0));

    const double lever = contact.gap + of.radius[i], inertia = of.inertia[i];
    const double slip_x = v[0] + lever * spin[2], slip_z = v[2] - lever * spin[0];
    const double friction =
        of.friction / (std::sqrt(slip_x * slip_x + slip_z * slip_z) + of.tiny);
    const double rolling = inertia / (inertia + lever * lever);

    double brake = smaller(rolling, friction * push);
    motion[0] = v[0] - brake * slip_x;
    motion[1] = v[1] + push;
    motion[2] = v[2] - brake * slip_z;

    brake = smaller(rolling, friction * lasting_push);
    const double stop_x = slip_x * brake, stop_z = slip_z * brake, by_spin = lever / inertia;
    v[0] -= stop_x;
    v[1] += lasting_push;
    v[2] -= stop_z;
    spin[0] += by_spin * stop_z;
    spin[2] -= by_spin * stop_x;
}

}  // namespace

NATIVE_EXPORT int rolling_version() { return 1; }

// Turns the cubes by a step: about z, then about x.
NATIVE_EXPORT void rolling_turn(const Rolling *of) {
    const int64_t n = of->n, axes[2] = {2, 0};
    for (int way = 0; way < 2; ++way)
        for (int64_t i = 0; i < n; ++i) {
            double turned[4];
            for (int64_t c = 0; c < 4; ++c) {
                const double cosine = of->turns[(way * 4 + c) * n + i];
                const double sine = of->turns[((2 + way) * 4 + c) * n + i];
                turned[c] = of->cube[of->turned_from[way * 4 + c] * n + i] * sine +
                            of->cube[c * n + i] * cosine;
            }
            if (of->cube[axes[way] * n + i] * of->ways[way * n + i] < of->turn_limit)
                for (int64_t c = 0; c < 4; ++c) of->cube[c * n + i] = turned[c];
        }
}

// Moves the balls by a step. Returns 0, or -1 if there was no memory.
NATIVE_EXPORT int rolling_move(const Rolling *rolling) {
    const Rolling &of = *rolling;
    const int64_t n = of.n;
    const auto ball = [&](int64_t kind, int64_t axis, int64_t i) -> double & {
        return of.ball[(kind * 3 + axis) * n + i];
    };
    try {
        std::vector<Contact> contacts(static_cast<size_t>(n));
        bool is_any_touching = false;
        for (int64_t i = 0; i < n; ++i) {
            Contact &contact = contacts[static_cast<size_t>(i)];
            ball(1, 1, i) -= of.fall[i];
            double state[3][3];
            for (int axis = 0; axis < 3; ++axis) {
                ball(2, axis, i) *= of.spin_kept;
                for (int kind = 0; kind < 3; ++kind) state[kind][axis] = ball(kind, axis, i);
            }
            rotation_matrix(of.cube[i], of.cube[n + i], of.cube[2 * n + i], of.cube[3 * n + i],
                            contact.frame);
            product(state, contact.frame, contact.local);
            contact.gap = contact.local[0][1] - of.reach[i];
            const double aside =
                larger(std::fabs(contact.local[0][0]), std::fabs(contact.local[0][2]));
            if (aside > of.half_edge) turn_to_edge(of, i, contact);
            is_any_touching = is_any_touching || contact.gap < of.touch;
        }
        // As in NumPy, balls in the air take part in the contacts of others, without a push.
        for (int64_t i = 0; i < n; ++i) {
            Contact &contact = contacts[static_cast<size_t>(i)];
            if (!is_any_touching) {
                for (int axis = 0; axis < 3; ++axis)
                    ball(0, axis, i) += ball(1, axis, i) * of.step;
                continue;
            }
            touch(of, i, contact);
            for (int kind = 0; kind < 3; ++kind)
                for (int axis = 0; axis < 3; ++axis) {
                    const double *const local = contact.local[kind], *const row = contact.frame[axis];
                    const double moved = (local[0] * row[0] + local[1] * row[1]) + local[2] * row[2];
                    if (kind == 0)
                        ball(0, axis, i) += moved * of.step;
                    else
                        ball(kind, axis, i) = moved;
                }
            const double x = ball(2, 0, i), y = ball(2, 1, i), z = ball(2, 2, i);
            const double speed = std::sqrt((x * x + y * y) + z * z);
            if (speed > of.max_spin)
                for (int axis = 0; axis < 3; ++axis) ball(2, axis, i) *= of.max_spin / speed;
        }
        return 0;
    } catch (const std::exception &) {
        return -1;
    }
}
