// Minibatches of PPO for actors and critics made of dense layers.
//
// The losses are those of `algorithms/ppo.py`; read that file first. These are their gradients, for
// B rows, C components of an action (1 if they have a joint ratio), S signals, and e = epsilon:
//
//     ratio r, advantage A     -r A / (B C), if r is in [1 - e, 1 + e] or r A < clip(r) A; else 0
//     value v, return R         (v - R) / (B S)
//     mean, log_std            by the ratio times z / std, z² - 1, for z = (a - mean) / std
//     logit j, chosen branch c by the ratio times [j = c] - p[j]
//     entropy                  -beta for log_std; beta p[j] (log p[j] + H) / B for a logit
#include <exception>

#include "dense.h"
#include "exports.h"

extern "C" {
struct PPONetwork {
    const DenseLinear *hidden;
    const DenseLinear *heads;  // means, logits and values, as far as this network has them
    float *log_std, *log_std_mean, *log_std_square;
    int64_t n_hidden, n_heads;
    int64_t has_actor, has_critic;
};

struct PPOBatch {                // N rows; all arrays are contiguous
    const float *obs;            // (N, n_obs), normalized
    const float *continuous;     // (N, n_continuous)
    const int64_t *discrete;     // (N, n_branches)
    const uint8_t *action_mask;  // (N, sum of branches), 1 where an action was not allowed
    const float *old_log_probs;  // (N, n_continuous + n_branches)
    const float *old_values;     // (N, n_signals)
    const float *advantages;     // (N,)
    const float *returns;        // (N, n_signals)
    const int64_t *branches;     // number of choices of each branch
    int64_t n_obs, n_continuous, n_branches, n_signals;
};

struct PPOSettings {
    double learning_rate, beta1, beta2, adam_epsilon;
    double epsilon, beta;
    double max_grad_norm;  // infinite for no limit
    int64_t joint_ratio, joint_entropy, clip_values;
};
}

namespace {

class Learner {
  public:
    Learner(const PPONetwork &network, const PPOBatch &batch, const PPOSettings &settings)
        : network(network), batch(batch), settings(settings),
          stack(network.hidden, network.n_hidden, network.heads, network.n_heads),
          n_actions(network.has_actor ? batch.n_continuous : 0),
          n_components(batch.n_continuous + batch.n_branches) {
        for (int64_t k = 0; k < batch.n_branches; ++k) n_logits += batch.branches[k];
        z.resize(static_cast<size_t>(n_components));
        log_ratios.resize(static_cast<size_t>(n_components));
        log_chances.resize(static_cast<size_t>(n_logits));
        entropies.resize(static_cast<size_t>(batch.n_branches));
        by_log_std.resize(static_cast<size_t>(n_actions));
        for (Matrix *each : {&log_std, &log_std_gradient, &log_std_mean, &log_std_square,
                             &inverse_std})
            *each = Matrix(1, n_actions);
        copy_log_std([](float &ours, const float &theirs) { ours = theirs; });
    }

    void write_back() {
        stack.write_back();
        copy_log_std([](const float &ours, float &theirs) { theirs = ours; });
    }

    // Computes the gradients of a minibatch; adds to its losses.
    void differentiate(const int64_t *rows, int64_t n, double &policy_loss, double &value_loss) {
        for (int64_t a = 0; a < n_actions; ++a) {
            by_log_std[a] = 0;
            inverse_std.row(0)[a] = std::exp(-log_std.row(0)[a]);
        }
        for (int64_t begin = 0; begin < n; begin += BLOCK) {
            const int64_t m = std::min(BLOCK, n - begin);
            for (int64_t i = 0; i < m; ++i)
                std::memcpy(stack.input.row(i), batch.obs + rows[begin + i] * batch.n_obs,
                            static_cast<size_t>(batch.n_obs) * sizeof(float));
            stack.forward(m);
            for (int64_t i = 0; i < m; ++i) {
                float *const out = stack.out.row(i);
                const int64_t row = rows[begin + i];
                if (network.has_actor) policy_loss += learn_policy(out, row, n);
                if (network.has_critic)
                    value_loss += learn_values(network.has_actor ? out + n_actions + n_logits : out,
                                               row, n);
            }
            stack.learn(m, begin == 0);
        }
        // The entropy of a Gaussian is log_std and a constant.
        const bool is_mean = !settings.joint_entropy;
        for (int64_t a = 0; a < n_actions; ++a)
            log_std_gradient.row(0)[a] = static_cast<float>(
                by_log_std[a] - settings.beta / (is_mean ? double(n_actions) : 1.0));
    }

    double squared_norm() const {
        double sum = stack.squared_norm();
        for (int64_t a = 0; a < n_actions; ++a) {
            const double of_one = log_std_gradient.row(0)[a];
            sum += of_one * of_one;
        }
        return sum;
    }

    void step(const Adam &adam, float scale) {
        stack.step(adam, scale);
        adam.move(log_std.row(0), log_std_gradient.row(0), log_std_mean.row(0),
                  log_std_square.row(0), log_std.width(), scale);
    }

  private:
    // Replaces means and logits of a row by their gradients; returns its share of the loss.
    double learn_policy(float *out, int64_t row, int64_t n) {
        const float *old = batch.old_log_probs + row * n_components;
        float *const means = out, *const logits = out + n_actions;
        const uint8_t *mask = batch.action_mask + row * n_logits;
        for (int64_t a = 0; a < n_actions; ++a) {
            z[a] = (batch.continuous[row * n_actions + a] - means[a]) * inverse_std.row(0)[a];
            log_ratios[a] = -0.5f * z[a] * z[a] - (log_std.row(0)[a] + HALF_LOG_TAU) - old[a];
        }
        for (int64_t k = 0, first = 0; k < batch.n_branches; first += batch.branches[k++]) {
            entropies[k] = into_chances(logits + first, mask + first, &log_chances[first],
                                        batch.branches[k]);
            log_ratios[n_actions + k] = log_chances[first + chosen(row, k)] - old[n_actions + k];
        }

        double loss = 0;
        if (settings.joint_ratio) {
            float sum = 0;
            for (float each : log_ratios) sum += each;
            const float by_ratio = clipped(sum, row, 1.0 / double(n), loss);
            std::fill(log_ratios.begin(), log_ratios.end(), by_ratio);
        } else {
            for (float &each : log_ratios)
                each = clipped(each, row, 1.0 / double(n * n_components), loss);
        }
        // From here on, log_ratios holds the gradients by the log-probabilities.
        for (int64_t a = 0; a < n_actions; ++a) {
            means[a] = log_ratios[a] * z[a] * inverse_std.row(0)[a];
            by_log_std[a] += double(log_ratios[a]) * (double(z[a]) * z[a] - 1);
        }
        const float bonus = static_cast<float>(settings.beta / double(n));
        for (int64_t k = 0, first = 0; k < batch.n_branches; first += batch.branches[k++]) {
            const float by_log_prob = log_ratios[n_actions + k];
            for (int64_t j = 0; j < batch.branches[k]; ++j) {
                float &entry = logits[first + j];  // its probability
                const float is_chosen = j == chosen(row, k) ? 1.0f : 0.0f;
                entry = mask[first + j]
                            ? 0.0f
                            : by_log_prob * (is_chosen - entry) +
                                  bonus * entry * (log_chances[first + j] + entropies[k]);
            }
        }
        return loss;
    }

    // Replaces values of a row by their gradients; returns its share of the loss.
    double learn_values(float *values, int64_t row, int64_t n) const {
        const double share = 1.0 / double(n * batch.n_signals);
        const float *old = batch.old_values + row * batch.n_signals;
        const float *returns = batch.returns + row * batch.n_signals;
        const float epsilon = static_cast<float>(settings.epsilon);
        double loss = 0;
        for (int64_t s = 0; s < batch.n_signals; ++s) {
            const float error = values[s] - returns[s];
            if (!settings.clip_values) {
                loss += share * double(error) * error;
                values[s] = static_cast<float>(share * error);
                continue;
            }
            const float change = values[s] - old[s];
            const float kept = change < -epsilon ? -epsilon : change > epsilon ? epsilon : change;
            const float other = old[s] + kept - returns[s];
            const bool moves = kept == change;  // the other error changes with the value
            const float square = error * error, other_square = other * other;
            // PyTorch halves the gradient of a maximum between equal operands.
            const float first = square > other_square ? 1.0f : square < other_square ? 0.0f : 0.5f;
            loss += share * (square < other_square ? other_square : square);
            values[s] = static_cast<float>(
                share * (first * error + (moves ? (1.0f - first) * other : 0.0f)));
        }
        return loss;
    }

    // Returns the gradient by the log-ratio of the clipped loss, and adds to the loss.
    float clipped(float log_ratio, int64_t row, double share, double &loss) const {
        const float ratio = std::exp(log_ratio), advantage = batch.advantages[row];
        const float low = static_cast<float>(1 - settings.epsilon);
        const float high = static_cast<float>(1 + settings.epsilon);
        const float kept = ratio < low ? low : ratio > high ? high : ratio;
        const float gain = ratio * advantage, clipped_gain = kept * advantage;
        loss -= share * (gain > clipped_gain ? clipped_gain : gain);
        return gain > clipped_gain || (gain == clipped_gain && kept != ratio)
                   ? 0.0f
                   : static_cast<float>(-share * gain);
    }

    int64_t chosen(int64_t row, int64_t branch) const {
        return batch.discrete[row * batch.n_branches + branch];
    }

    template <class Copy> void copy_log_std(const Copy &copy) {
        for (int64_t a = 0; a < n_actions; ++a) {
            copy(log_std.row(0)[a], network.log_std[a]);
            copy(log_std_mean.row(0)[a], network.log_std_mean[a]);
            copy(log_std_square.row(0)[a], network.log_std_square[a]);
        }
    }

    const PPONetwork &network;
    const PPOBatch &batch;
    const PPOSettings &settings;
    Stack stack;
    int64_t n_actions, n_components, n_logits = 0;
    Matrix log_std, log_std_gradient, log_std_mean, log_std_square, inverse_std;
    std::vector<double> by_log_std;
    std::vector<float> z, log_ratios, log_chances, entropies;  // of one row
};

}  // namespace

NATIVE_EXPORT int dense_version() { return 2; }

// Takes one gradient step for each minibatch.
//
// networks      Actor and critic, apart or together. Gradients are clipped over all of them.
// rows          (n_minibatches, batch_size) rows of the minibatches.
// first_step    Number of the first step for Adam, from 1.
// losses        (n_minibatches, 2) results: policy loss and value loss.
// stop          A number that another thread sets to end the call before the next minibatch.
// Returns the number of minibatches that were learned from, or -1 if there was no memory.
NATIVE_EXPORT int64_t dense_ppo(const PPONetwork *networks, int64_t n_networks,
                                const PPOBatch *batch, const PPOSettings *settings,
                                const int64_t *rows, int64_t n_minibatches, int64_t batch_size,
                                int64_t first_step, double *losses, const volatile int32_t *stop) {
    try {
        std::vector<Learner> learners;
        learners.reserve(static_cast<size_t>(n_networks));
        for (int64_t i = 0; i < n_networks; ++i) learners.emplace_back(networks[i], *batch, *settings);
        int64_t done = 0;
        for (; done < n_minibatches && !*stop; ++done, rows += batch_size, losses += 2) {
            losses[0] = losses[1] = 0;
            double squared_norm = 0;
            for (Learner &learner : learners) {
                learner.differentiate(rows, batch_size, losses[0], losses[1]);
                if (!std::isinf(settings->max_grad_norm)) squared_norm += learner.squared_norm();
            }
            double scale = settings->max_grad_norm / (std::sqrt(squared_norm) + 1e-6);
            if (scale > 1) scale = 1;
            const Adam adam(settings->learning_rate, settings->beta1, settings->beta2,
                            settings->adam_epsilon, first_step + done);
            for (Learner &learner : learners) learner.step(adam, static_cast<float>(scale));
        }
        for (Learner &learner : learners) learner.write_back();
        return done;
    } catch (const std::exception &) {
        return -1;
    }
}
