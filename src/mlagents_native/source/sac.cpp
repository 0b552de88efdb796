// Gradient steps of SAC for networks made of dense layers.
//
// The losses are those of `algorithms/sac.py`; read that file first. These are their gradients, for
// B rows, S signals, K branches, and c = alpha * weight for each part of the entropy:
//
//     Q of recorded actions     (Q - target) / (B S)
//     V of states               (V - target) / (B S)
//     Q of the policy's actions -1 / (B S), through the first network to the actions
//     a = tanh(u)               du = (1 - a²) da + 2 c a / B
//     u = mean + std * noise    d mean = du,  d log std = du * std * noise - c / B, unless clamped
//     p = softmax(logits)       d logits = p (sum of p v - v),  v = (mean of Q / K - c log p) / B
//     log alpha                 weight * (mean of entropy - target)
//
// With branches, Q of an action is the mean over branches of the outputs of its choices, or of
// their expectation. Each network in turn processes all rows, so that its weights stay in the
// cache.
#include <exception>

#include "dense.h"
#include "exports.h"

extern "C" {
struct SACNetwork {
    const DenseLinear *hidden, *heads;
    int64_t n_hidden, n_heads;
};

struct SACNetworks {
    SACNetwork actor;   // heads: means and log-deviations, if there are any, then logits
    SACNetwork q[2];    // inputs: observations, then continuous actions
    SACNetwork value, target;
    float *log_alpha, *log_alpha_mean, *log_alpha_square;  // (n_parts,)
    const float *entropy_target, *entropy_weight;          // (n_parts,)
    const float *gamma;                                    // (n_signals,)
    const uint8_t *respects_end;                           // (n_signals,)
    const int64_t *branches;                               // number of choices of each branch
    int64_t n_obs, n_continuous, n_branches, n_signals, batch_size;
};

struct SACBatch {                // rows of all minibatches; all arrays are contiguous
    const float *obs, *next_obs; // (N, n_obs), normalized
    const float *continuous;     // (N, n_continuous)
    const int32_t *discrete;     // (N, n_branches)
    const uint8_t *action_mask;  // (N, sum of branches), 1 where an action was not allowed
    const float *rewards;        // (N, n_signals)
    const uint8_t *terminated;   // (N,)
    const float *noise;          // (N, n_continuous)
};

struct SACSettings {
    double learning_rate, beta1, beta2, adam_epsilon;
    double tau;
    double max_grad_norm;  // infinite for no limit
    double smallest_log_std, largest_log_std;
};
}

namespace {

Stack stack_of(const SACNetwork &network, int64_t n_rows) {
    return Stack(network.hidden, network.n_hidden, network.heads, network.n_heads, n_rows);
}

// Returns log(1 - tanh(u)²), exact even if tanh rounds to 1.
inline float log_slope_of_tanh(float u) {
    const float softplus = std::fmax(-2 * u, 0.0f) + std::log1p(std::exp(-2 * std::fabs(u)));
    return 2 * (0.693147180559945309f - u - softplus);
}

class SACLearner {
  public:
    explicit SACLearner(const SACNetworks &networks)
        : networks(networks), branches(networks.branches, networks.branches + networks.n_branches),
          n(networks.batch_size), n_obs(networks.n_obs), n_actions(networks.n_continuous),
          n_branches(networks.n_branches), n_signals(networks.n_signals), n_logits(sum(branches)),
          n_parts((n_actions ? 1 : 0) + n_branches), n_outputs(n_logits ? n_logits : 1),
          block(std::min(n, BLOCK)), actor(stack_of(networks.actor, n)),
          q{stack_of(networks.q[0], block), stack_of(networks.q[1], block)},
          value(stack_of(networks.value, block)), target(stack_of(networks.target, block)),
          actions(n, n_actions), deviations(n, n_actions), by_actions(n, n_actions),
          is_free(n, n_actions), log_chances(n, n_logits), q_mean(n, n_logits),
          entropies(n, n_parts), q_target(n, n_signals), q_policy(n, n_signals),
          worth(static_cast<size_t>(n_parts)), log_alpha(1, n_parts), log_alpha_mean(1, n_parts),
          log_alpha_square(1, n_parts), by_log_alpha(1, n_parts) {
        read_log_alpha();
    }

    // Copies all weights, and Adam's means, from where PyTorch stores them.
    void read() {
        for (Stack *each : {&actor, &q[0], &q[1], &value, &target}) each->read();
        read_log_alpha();
    }

    // Writes them back.
    void write_back() {
        for (Stack *each : {&actor, &q[0], &q[1], &value, &target}) each->write_back();
        const size_t size = static_cast<size_t>(n_parts) * sizeof(float);
        std::memcpy(networks.log_alpha, log_alpha.row(0), size);
        std::memcpy(networks.log_alpha_mean, log_alpha_mean.row(0), size);
        std::memcpy(networks.log_alpha_square, log_alpha_square.row(0), size);
    }

    // Takes one gradient step; writes the losses of policy, Q networks and values, and mean values.
    void learn(const SACBatch &batch, int64_t first, const SACSettings &settings, int64_t step,
               double *losses) {
        std::fill(losses, losses + 4 + n_signals, 0.0);
        for (int64_t part = 0; part < n_parts; ++part)
            worth[part] = std::exp(log_alpha.row(0)[part]) * networks.entropy_weight[part];
        act(batch, first, settings);
        find_targets(batch, first);
        for (int64_t i = 0; i < 2; ++i) learn_q(i, batch, first, losses);
        learn_values(batch, first, losses);
        learn_policy(batch, first);

        const Adam adam(settings.learning_rate, settings.beta1, settings.beta2,
                        settings.adam_epsilon, step);
        const double limit = settings.max_grad_norm;
        const bool is_limited = !std::isinf(limit);
        actor.step(adam, is_limited ? scale_of(actor.squared_norm(), limit) : 1.0f);
        const double of_critics =
            is_limited ? q[0].squared_norm() + q[1].squared_norm() + value.squared_norm() : 0.0;
        const float scale = is_limited ? scale_of(of_critics, limit) : 1.0f;
        for (Stack *critic : {&q[0], &q[1], &value}) critic->step(adam, scale);
        adam.move(log_alpha.row(0), by_log_alpha.row(0), log_alpha_mean.row(0),
                  log_alpha_square.row(0), log_alpha.width(), 1.0f);
        target.follow(value, static_cast<float>(settings.tau));
    }

  private:
    static int64_t sum(const std::vector<int64_t> &numbers) {
        int64_t total = 0;
        for (int64_t each : numbers) total += each;
        return total;
    }

    static float scale_of(double squared_norm, double limit) {
        return static_cast<float>(std::min(1.0, limit / (std::sqrt(squared_norm) + 1e-6)));
    }

    void read_log_alpha() {
        const size_t size = static_cast<size_t>(n_parts) * sizeof(float);
        std::memcpy(log_alpha.row(0), networks.log_alpha, size);
        std::memcpy(log_alpha_mean.row(0), networks.log_alpha_mean, size);
        std::memcpy(log_alpha_square.row(0), networks.log_alpha_square, size);
    }

    // Calls function(begin, rows) for every block of rows.
    template <class Function> void for_each_block(const Function &function) const {
        for (int64_t begin = 0; begin < n; begin += block)
            function(begin, std::min(block, n - begin));
    }

    // Copies observations, and actions if they are given, to the input of a network.
    void fill(Matrix &input, int64_t at, int64_t rows, const float *obs, const float *of_actions,
              int64_t stride) const {
        for (int64_t i = 0; i < rows; ++i) {
            float *const row = input.row(at + i);
            std::memcpy(row, obs + i * n_obs, static_cast<size_t>(n_obs) * sizeof(float));
            if (of_actions)
                std::memcpy(row + n_obs, of_actions + i * stride,
                            static_cast<size_t>(n_actions) * sizeof(float));
        }
    }

    // Samples actions of the policy and computes its entropy, by parts.
    void act(const SACBatch &batch, int64_t first, const SACSettings &settings) {
        const float low = static_cast<float>(settings.smallest_log_std);
        const float high = static_cast<float>(settings.largest_log_std);
        for_each_block([&](int64_t begin, int64_t rows) {
            fill(actor.input, begin, rows, batch.obs + (first + begin) * n_obs, nullptr, 0);
            actor.forward(rows, begin);
            for (int64_t i = begin; i < begin + rows; ++i) {
                float *const mean = actor.out.row(i), *const log_std = mean + n_actions;
                const float *const noise = batch.noise + (first + i) * n_actions;
                float entropy = 0;
                for (int64_t a = 0; a < n_actions; ++a) {
                    const float wanted = log_std[a];
                    const float kept = wanted < low ? low : wanted > high ? high : wanted;
                    const float deviation = std::exp(kept) * noise[a];
                    const float before = mean[a] + deviation;
                    is_free.row(i)[a] = kept == wanted ? 1.0f : 0.0f;
                    deviations.row(i)[a] = deviation;
                    actions.row(i)[a] = std::tanh(before);
                    entropy += kept + log_slope_of_tanh(before) + 0.5f * noise[a] * noise[a] +
                               HALF_LOG_TAU;
                }
                if (n_actions) entropies.row(i)[0] = entropy;
                float *logits = mean + 2 * n_actions, *of_log = log_chances.row(i);
                const uint8_t *mask = batch.action_mask + (first + i) * n_logits;
                for (int64_t k = 0; k < n_branches; ++k) {
                    entropies.row(i)[(n_actions ? 1 : 0) + k] =
                        into_chances(logits, mask, of_log, branches[k]);
                    logits += branches[k], of_log += branches[k], mask += branches[k];
                }
            }
        });
    }

    // Computes r + gamma * V_target of the next state.
    void find_targets(const SACBatch &batch, int64_t first) {
        for_each_block([&](int64_t begin, int64_t rows) {
            fill(target.input, 0, rows, batch.next_obs + (first + begin) * n_obs, nullptr, 0);
            target.forward(rows);
            for (int64_t i = 0; i < rows; ++i)
                for (int64_t s = 0; s < n_signals; ++s) {
                    const int64_t row = first + begin + i;
                    const bool ends = batch.terminated[row] && networks.respects_end[s];
                    q_target.row(begin + i)[s] =
                        batch.rewards[row * n_signals + s] +
                        (ends ? 0.0f : networks.gamma[s] * target.out.row(i)[s]);
                }
        });
    }

    // Computes the gradients of one Q network, and Q of the policy's actions.
    void learn_q(int64_t which, const SACBatch &batch, int64_t first, double *losses) {
        Stack &network = q[which];
        const double share = 1.0 / double(n * n_signals);
        for_each_block([&](int64_t begin, int64_t rows) {
            const float *const obs = batch.obs + (first + begin) * n_obs;
            fill(network.input, 0, rows, obs, n_actions ? actions.row(begin) : nullptr,
                 actions.stride);
            network.forward(rows);
            for (int64_t i = 0; i < rows; ++i) note_q_of_policy(which, begin + i, network.out.row(i));
            if (n_actions && which == 0) {
                for (int64_t i = 0; i < rows; ++i) spread_over_chances(begin + i, network.out.row(i));
                network.back_to_inputs(rows, n_obs, [&](int64_t i, int64_t a, float gradient) {
                    by_actions.row(begin + i)[a] = gradient;
                });
            }
            if (n_actions) {
                fill(network.input, 0, rows, obs, batch.continuous + (first + begin) * n_actions,
                     n_actions);
                network.forward(rows);
            }
            for (int64_t i = 0; i < rows; ++i) {
                float *const out = network.out.row(i);
                const int32_t *const chosen = batch.discrete + (first + begin + i) * n_branches;
                for (int64_t s = 0; s < n_signals; ++s) {
                    const float error =
                        q_of_choices(out + s * n_outputs, chosen) - q_target.row(begin + i)[s];
                    losses[1 + which] += 0.5 * share * double(error) * error;
                    set_by_choices(out + s * n_outputs, chosen, static_cast<float>(share * error));
                }
            }
            network.learn(rows, begin == 0);
        });
    }

    // Stores Q of the policy's actions in row i: from the first network, or the lower of both.
    void note_q_of_policy(int64_t which, int64_t i, const float *out) {
        const float *const chances = actor.out.row(i) + 2 * n_actions;
        if (which == 0)
            for (int64_t j = 0; j < n_logits; ++j) {
                float sum = 0;
                for (int64_t s = 0; s < n_signals; ++s) sum += out[s * n_outputs + j];
                q_mean.row(i)[j] = sum / float(n_signals);
            }
        for (int64_t s = 0; s < n_signals; ++s) {
            float expected = n_logits ? 0.0f : out[s];
            for (int64_t j = 0; j < n_logits; ++j) expected += chances[j] * out[s * n_outputs + j];
            if (n_logits) expected /= float(n_branches);
            float &lower = q_policy.row(i)[s];
            if (which == 0) first_q_sum += expected;
            if (which == 0 || expected < lower || std::isnan(expected)) lower = expected;
        }
    }

    // Sets the gradient of the policy's loss by the outputs of a Q network for row i.
    void spread_over_chances(int64_t i, float *out) const {
        const float share = -1.0f / float(n * n_signals);
        const float *const chances = actor.out.row(i) + 2 * n_actions;
        for (int64_t s = 0; s < n_signals; ++s) {
            if (!n_logits) out[s] = share;
            for (int64_t j = 0; j < n_logits; ++j)
                out[s * n_outputs + j] = share * chances[j] / float(n_branches);
        }
    }

    float q_of_choices(const float *out, const int32_t *chosen) const {
        if (!n_logits) return out[0];
        float sum = 0;
        for (int64_t k = 0, start = 0; k < n_branches; start += branches[k++])
            sum += out[start + chosen[k]];
        return sum / float(n_branches);
    }

    void set_by_choices(float *out, const int32_t *chosen, float gradient) const {
        std::fill(out, out + n_outputs, n_logits ? 0.0f : gradient);
        for (int64_t k = 0, start = 0; k < n_branches; start += branches[k++])
            out[start + chosen[k]] = gradient / float(n_branches);
    }

    // Computes the gradients of the values. Before that, adds up the loss of the policy.
    void learn_values(const SACBatch &batch, int64_t first, double *losses) {
        const double share = 1.0 / double(n * n_signals);
        losses[0] = -first_q_sum * share;
        first_q_sum = 0;
        for_each_block([&](int64_t begin, int64_t rows) {
            fill(value.input, 0, rows, batch.obs + (first + begin) * n_obs, nullptr, 0);
            value.forward(rows);
            for (int64_t i = 0; i < rows; ++i) {
                float bonus = 0;
                for (int64_t part = 0; part < n_parts; ++part)
                    bonus += worth[part] * entropies.row(begin + i)[part];
                losses[0] -= double(bonus) / double(n);
                float *const out = value.out.row(i);
                for (int64_t s = 0; s < n_signals; ++s) {
                    const float error = out[s] - (q_policy.row(begin + i)[s] + bonus);
                    losses[3] += 0.5 * share * double(error) * error;
                    losses[4 + s] += double(out[s]) / double(n);
                    out[s] = static_cast<float>(share * error);
                }
            }
            value.learn(rows, begin == 0);
        });
    }

    // Computes the gradients of the actor and of the entropy coefficients.
    void learn_policy(const SACBatch &batch, int64_t first) {
        const int64_t first_branch = n_actions ? 1 : 0;
        const float of_row = 1.0f / float(n);
        for_each_block([&](int64_t begin, int64_t rows) {
            for (int64_t i = begin; i < begin + rows; ++i) {
                float *const mean = actor.out.row(i), *const log_std = mean + n_actions;
                for (int64_t a = 0; a < n_actions; ++a) {
                    const float action = actions.row(i)[a], by_action = by_actions.row(i)[a];
                    const float of_entropy = worth[0] * of_row;
                    const float by_mean =
                        by_action + action * (2 * of_entropy - by_action * action);
                    mean[a] = by_mean;
                    log_std[a] =
                        is_free.row(i)[a] * (by_mean * deviations.row(i)[a] - of_entropy);
                }
                float *chances = mean + 2 * n_actions;
                const float *of_log = log_chances.row(i), *of_q = q_mean.row(i);
                const uint8_t *mask = batch.action_mask + (first + i) * n_logits;
                for (int64_t k = 0; k < n_branches; ++k) {
                    const float of_entropy = worth[first_branch + k] * of_row;
                    const float of_mean = of_row / float(n_branches);
                    float expected = 0;
                    for (int64_t j = 0; j < branches[k]; ++j)
                        expected += chances[j] * (of_mean * of_q[j] - of_entropy * of_log[j]);
                    for (int64_t j = 0; j < branches[k]; ++j) {
                        const float gain = of_mean * of_q[j] - of_entropy * of_log[j];
                        chances[j] = mask[j] ? 0.0f : chances[j] * (expected - gain);
                    }
                    chances += branches[k], of_log += branches[k];
                    of_q += branches[k], mask += branches[k];
                }
            }
            actor.learn(rows, begin == 0, begin);
        });
        for (int64_t part = 0; part < n_parts; ++part) {
            double surplus = 0;
            for (int64_t i = 0; i < n; ++i)
                surplus += double(entropies.row(i)[part]) - networks.entropy_target[part];
            by_log_alpha.row(0)[part] =
                static_cast<float>(networks.entropy_weight[part] * surplus / double(n));
        }
    }

    const SACNetworks networks;
    const std::vector<int64_t> branches;
    const int64_t n;  // rows of a minibatch
    const int64_t n_obs, n_actions, n_branches, n_signals, n_logits, n_parts, n_outputs, block;
    Stack actor;  // has room for all rows; its outputs become their gradients
    Stack q[2], value, target;
    Matrix actions, deviations, by_actions, is_free;       // (n, n_actions)
    Matrix log_chances, q_mean;                            // (n, n_logits)
    Matrix entropies;                                      // (n, n_parts)
    Matrix q_target, q_policy;                             // (n, n_signals)
    std::vector<float> worth;                              // alpha * weight of each part
    Matrix log_alpha, log_alpha_mean, log_alpha_square, by_log_alpha;  // (1, n_parts)
    double first_q_sum = 0;  // of the policy's actions, by the first network
};

}  // namespace

NATIVE_EXPORT int sac_version() { return 1; }

// Returns a learner for minibatches of one size, or null if there was no memory. It keeps all
// weights in a layout of its own; `networks` says where PyTorch stores them, and must stay valid.
NATIVE_EXPORT void *sac_new(const SACNetworks *networks) {
    try {
        return new SACLearner(*networks);
    } catch (const std::exception &) {
        return nullptr;
    }
}

NATIVE_EXPORT void sac_delete(void *learner) { delete static_cast<SACLearner *>(learner); }

// Takes one gradient step for each minibatch, and writes all weights back.
//
// must_read     Whether PyTorch has changed weights since the last call.
// first_step    Number of the first step for Adam, from 1.
// losses        (n_minibatches, 4 + n_signals) results: losses of the policy, of both Q networks
//               and of the values, and the mean value of the states by each signal.
// stop          A number that another thread sets to end the call before the next minibatch.
// Returns the number of minibatches that were learned from.
NATIVE_EXPORT int64_t sac_learn(void *learner, const SACBatch *batch, const SACSettings *settings,
                                int64_t batch_size, int64_t n_signals, int64_t n_minibatches,
                                int64_t must_read, int64_t first_step, double *losses,
                                const volatile int32_t *stop) {
    SACLearner &sac = *static_cast<SACLearner *>(learner);
    if (must_read) sac.read();
    int64_t done = 0;
    for (; done < n_minibatches && !*stop; ++done)
        sac.learn(*batch, done * batch_size, *settings, first_step + done,
                  losses + done * (4 + n_signals));
    sac.write_back();
    return done;
}
