// Dense networks with swish: forward pass, gradients and Adam.
//
// A network is a stack of hidden layers and one output layer. Rows of a minibatch pass through it
// in blocks that stay in the cache. All matrices are stored by rows, and rows are padded with zeros
// to whole vectors, which stay zero:
//
//     forward     before = x W + b,  y = swish(before),  slope = swish'(before)
//     backward    dW += x' dbefore,  db += sum of dbefore,  dx = dbefore W'
//
// Weights change once for each minibatch, so a transposed copy is kept for dx.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "simd.h"

// --------------------------------------------------------- what Python passes: native_dense.py

extern "C" {
// Weights of a linear layer as PyTorch stores them, weight (n_out, n_in) and bias (n_out,), each
// with Adam's running means of the gradient and of its square. A layer that does not learn has no
// means. If `is_transposed`, the weight is (n_in, n_out).
struct DenseLinear {
    float *weight, *weight_mean, *weight_square;
    float *bias, *bias_mean, *bias_square;
    int64_t n_in, n_out, is_transposed;
};
}

namespace {

constexpr int64_t BLOCK = 64;  // rows that pass through a network together

// Returns the distance between rows: an odd number of whole cache lines, because rows at a distance
// of a power of two would compete for few cache sets.
inline int64_t stride_for(int64_t n_columns) {
    const int64_t lines = (n_columns + 15) / 16;
    return 16 * (lines > 1 ? lines | 1 : lines);
}

// A matrix of zeros, aligned to cache lines.
class Matrix {
  public:
    Matrix() = default;
    Matrix(int64_t rows, int64_t columns)
        : rows(rows), columns(columns), stride(stride_for(columns)),
          held(static_cast<size_t>(rows * stride + 16), 0.0f) {
        const auto address = reinterpret_cast<uintptr_t>(held.data());
        first = held.data() + (64 - address % 64) % 64 / sizeof(float);
    }
    Matrix(Matrix &&) = default;  // moving keeps the address of the numbers
    Matrix &operator=(Matrix &&) = default;

    float *row(int64_t i) { return first + i * stride; }
    const float *row(int64_t i) const { return first + i * stride; }

    // Width of a row in floats, rounded up to whole vectors.
    int64_t width() const { return (columns + Floats::LANES - 1) / Floats::LANES * Floats::LANES; }

    int64_t rows = 0, columns = 0, stride = 0;

  private:
    std::vector<float> held;
    float *first = nullptr;
};

// ----------------------------------------------------------------------------------- products

#if defined(__AVX512F__) || (defined(__ARM_NEON) && defined(__aarch64__))
constexpr int TILE = 8;  // rows whose sums fit into 32 registers, for two vectors each
#else
constexpr int TILE = 6;  // 16 registers
#endif

template <int ROWS, int VECTORS, class Start, class Finish>
inline void tile(int64_t i, int64_t j, int64_t k, const float *a, int64_t a_row, int64_t a_step,
                 const float *b, int64_t b_step, const Start &start, const Finish &finish) {
    Floats sum[ROWS][VECTORS];
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < VECTORS; ++v) sum[r][v] = start(j + v * Floats::LANES);
    for (int64_t step = 0; step < k; ++step, a += a_step, b += b_step) {
        Floats right[VECTORS];
        for (int v = 0; v < VECTORS; ++v) right[v] = Floats::load(b + v * Floats::LANES);
        for (int r = 0; r < ROWS; ++r) {
            const Floats left = Floats::all(a[r * a_row]);
            for (int v = 0; v < VECTORS; ++v) sum[r][v] = fma(left, right[v], sum[r][v]);
        }
    }
    for (int r = 0; r < ROWS; ++r)
        for (int v = 0; v < VECTORS; ++v) finish(i + r, j + v * Floats::LANES, sum[r][v]);
}

template <int ROWS, int VECTORS, class Start, class Finish>
inline void rows_of_tiles(int64_t &i, int64_t m, int64_t j, int64_t k, const float *a,
                          int64_t a_row, int64_t a_step, const float *b, int64_t b_step,
                          const Start &start, const Finish &finish) {
    for (; i + ROWS <= m; i += ROWS)
        tile<ROWS, VECTORS>(i, j, k, a + i * a_row, a_row, a_step, b + j, b_step, start, finish);
}

template <int VECTORS, class Start, class Finish>
inline void columns_of_tiles(int64_t &j, int64_t m, int64_t width, int64_t k, const float *a,
                             int64_t a_row, int64_t a_step, const float *b, int64_t b_step,
                             const Start &start, const Finish &finish) {
    for (; j + VECTORS * Floats::LANES <= width; j += VECTORS * Floats::LANES) {
        int64_t i = 0;
        rows_of_tiles<TILE, VECTORS>(i, m, j, k, a, a_row, a_step, b, b_step, start, finish);
        rows_of_tiles<4, VECTORS>(i, m, j, k, a, a_row, a_step, b, b_step, start, finish);
        rows_of_tiles<1, VECTORS>(i, m, j, k, a, a_row, a_step, b, b_step, start, finish);
    }
}

// Computes start + A B for an (m, k) matrix A and a (k, width) matrix B.
//
// a          Element (i, s) of A is a[i * a_row + s * a_step].
// b          Element (s, j) of B is b[s * b_step + j]; the width is a number of whole vectors.
// start(j)   Returns the initial value of the sum of column j, a vector.
// finish(i, j, sum)  Receives the vector of results that begins at row i and column j.
template <class Start, class Finish>
inline void multiply(int64_t m, int64_t width, int64_t k, const float *a, int64_t a_row,
                     int64_t a_step, const float *b, int64_t b_step, const Start &start,
                     const Finish &finish) {
    int64_t j = 0;
    columns_of_tiles<2>(j, m, width, k, a, a_row, a_step, b, b_step, start, finish);
    columns_of_tiles<1>(j, m, width, k, a, a_row, a_step, b, b_step, start, finish);
}

inline Floats zeros(int64_t) { return Floats::all(0.0f); }

// ----------------------------------------------------------------------------------- networks

// Adam (arXiv:1412.6980) at one step, in the form of PyTorch.
struct Adam {
    float step_size, root_of_correction, mean_share, square_share, epsilon;

    Adam(double learning_rate, double beta1, double beta2, double epsilon, int64_t step)
        : step_size(static_cast<float>(learning_rate / (1 - std::pow(beta1, double(step))))),
          root_of_correction(static_cast<float>(std::sqrt(1 - std::pow(beta2, double(step))))),
          mean_share(static_cast<float>(1 - beta1)), square_share(static_cast<float>(1 - beta2)),
          epsilon(static_cast<float>(epsilon)) {}

    // Moves a row of parameters by its gradient, scaled first.
    void move(float *parameter, const float *gradient, float *mean, float *square, int64_t width,
              float scale) const {
        const Floats of_mean = Floats::all(mean_share), of_square = Floats::all(square_share);
        const Floats shrink = Floats::all(1.0f / root_of_correction), tiny = Floats::all(epsilon);
        const Floats size = Floats::all(-step_size), scaled = Floats::all(scale);
        for (int64_t j = 0; j < width; j += Floats::LANES) {
            const Floats g = Floats::load(gradient + j) * scaled;
            Floats m = Floats::load(mean + j), s = Floats::load(square + j);
            m = fma(of_mean, g - m, m);
            s = fma(of_square, g * g - s, s);
            m.store(mean + j);
            s.store(square + j);
            const Floats step = m / fma(root(s), shrink, tiny);
            fma(size, step, Floats::load(parameter + j)).store(parameter + j);
        }
    }
};

// A linear layer; several layers with the same input are one, side by side.
class Linear {
  public:
    Linear(const DenseLinear *parts, int64_t n_parts, bool is_first)
        : parts(parts, parts + n_parts), n_in(parts[0].n_in), n_out(columns_of(parts, n_parts)),
          learns(parts[0].weight_mean != nullptr), weight(n_in + 1, n_out),
          gradient(learns ? n_in + 1 : 0, n_out), mean(learns ? n_in + 1 : 0, n_out),
          square(learns ? n_in + 1 : 0, n_out),
          transposed(learns && !is_first ? n_out : 0, n_in) {
        read();
    }

    // Copies weights and Adam's means from where PyTorch stores them.
    void read() {
        copy_all(true);
        transpose();
    }

    // Writes weights and Adam's means back to where they came from.
    void write_back() { copy_all(false); }

    // Calls finish(i, j, x W + b) for n rows of x.
    template <class Finish>
    void forward(int64_t n, const float *x, int64_t x_stride, const Finish &finish) const {
        const float *bias = weight.row(n_in);
        multiply(n, weight.width(), n_in, x, x_stride, 1, weight.row(0), weight.stride,
                 [bias](int64_t j) { return Floats::load(bias + j); }, finish);
    }

    // Computes the gradients of n rows, given the gradient by the output; adds them to those of
    // earlier rows unless these are the first.
    void learn(int64_t n, const float *x, int64_t x_stride, const float *by_output,
               int64_t stride, bool are_first) {
        float *const first = gradient.row(0);
        const int64_t gradient_stride = gradient.stride;
        const auto set = [=](int64_t i, int64_t j, Floats sum) {
            sum.store(first + i * gradient_stride + j);
        };
        const auto add = [=](int64_t i, int64_t j, Floats sum) {
            float *const entry = first + i * gradient_stride + j;
            (Floats::load(entry) + sum).store(entry);
        };
        const int64_t width = gradient.width();
        if (are_first)
            multiply(n_in, width, n, x, 1, x_stride, by_output, stride, zeros, set);
        else
            multiply(n_in, width, n, x, 1, x_stride, by_output, stride, zeros, add);
        float *const by_bias = gradient.row(n_in);
        for (int64_t j = 0; j < width; j += Floats::LANES) {
            Floats sum = are_first ? Floats::all(0.0f) : Floats::load(by_bias + j);
            for (int64_t i = 0; i < n; ++i) sum = sum + Floats::load(by_output + i * stride + j);
            sum.store(by_bias + j);
        }
    }

    // Calls finish(i, j, dx) for n rows of the gradient by the output.
    template <class Finish>
    void back(int64_t n, const float *by_output, int64_t stride, const Finish &finish) const {
        multiply(n, transposed.width(), n_out, by_output, stride, 1, transposed.row(0),
                 transposed.stride, zeros, finish);
    }

    double squared_norm() const {
        double sum = 0;
        for (int64_t i = 0; i <= n_in; ++i)
            for (int64_t j = 0; j < n_out; ++j) sum += double(gradient.row(i)[j]) * gradient.row(i)[j];
        return sum;
    }

    void step(const Adam &adam, float scale) {
        for (int64_t i = 0; i <= n_in; ++i)
            adam.move(weight.row(i), gradient.row(i), mean.row(i), square.row(i), weight.width(),
                      scale);
        transpose();
    }

    // Moves the weights toward those of another layer by a share of the difference.
    void follow(const Linear &other, float share) {
        const Floats part = Floats::all(share);
        for (int64_t i = 0; i <= n_in; ++i)
            for (int64_t j = 0; j < weight.width(); j += Floats::LANES) {
                const Floats ours = Floats::load(weight.row(i) + j);
                fma(part, Floats::load(other.weight.row(i) + j) - ours, ours)
                    .store(weight.row(i) + j);
            }
    }

    // Returns row `i` of W: the weights of input `i`.
    const float *weights_of_input(int64_t i) const { return weight.row(i); }

    std::vector<DenseLinear> parts;
    int64_t n_in, n_out;

  private:
    static int64_t columns_of(const DenseLinear *parts, int64_t n_parts) {
        int64_t n = 0;
        for (int64_t p = 0; p < n_parts; ++p) n += parts[p].n_out;
        return n;
    }

    // Copies weights, biases, and means of Adam, from PyTorch's memory or back.
    void copy_all(bool is_read) {
        int64_t first = 0;
        for (const DenseLinear &part : parts) {
            Matrix *const ours[3] = {&weight, &mean, &square};
            float *const weights[3] = {part.weight, part.weight_mean, part.weight_square};
            float *const biases[3] = {part.bias, part.bias_mean, part.bias_square};
            for (int kind = 0; kind < (learns ? 3 : 1); ++kind) {
                float *const matrix = ours[kind]->row(0) + first;
                float *const bias = ours[kind]->row(n_in) + first;
                const int64_t stride = ours[kind]->stride;
                const size_t row_size = static_cast<size_t>(part.n_out) * sizeof(float);
                if (is_read)
                    std::memcpy(bias, biases[kind], row_size);
                else
                    std::memcpy(biases[kind], bias, row_size);
                if (!part.is_transposed) {
                    if (is_read)
                        transpose_matrix(weights[kind], n_in, part.n_out, n_in, matrix, stride);
                    else
                        transpose_matrix(matrix, stride, n_in, part.n_out, weights[kind], n_in);
                    continue;
                }
                for (int64_t i = 0; i < n_in; ++i) {
                    float *const theirs = weights[kind] + i * part.n_out;
                    if (is_read)
                        std::memcpy(matrix + i * stride, theirs, row_size);
                    else
                        std::memcpy(theirs, matrix + i * stride, row_size);
                }
            }
            first += part.n_out;
        }
    }

    void transpose() {
        if (transposed.rows)
            transpose_matrix(weight.row(0), weight.stride, n_in, n_out, transposed.row(0),
                             transposed.stride);
    }

    bool learns;
    Matrix weight, gradient, mean, square;  // (n_in + 1, n_out): the last row is the bias
    Matrix transposed;                      // (n_out, n_in)
};

// Hidden layers and an output layer, with room for some rows.
class Stack {
  public:
    Stack(const DenseLinear *hidden, int64_t n_hidden, const DenseLinear *heads, int64_t n_heads,
          int64_t n_rows = BLOCK)
        : input(n_rows, n_hidden ? hidden[0].n_in : heads[0].n_in) {
        for (int64_t l = 0; l < n_hidden; ++l) {
            layers.emplace_back(hidden + l, 1, l == 0);
            outputs.emplace_back(n_rows, hidden[l].n_out);
            slopes.emplace_back(n_rows, hidden[l].n_out);
        }
        layers.emplace_back(heads, n_heads, n_hidden == 0);
        out = Matrix(n_rows, layers.back().n_out);
    }

    void read() {
        for (Linear &layer : layers) layer.read();
    }

    // Maps n rows of `input` to n rows of `out`, from row `at` on.
    void forward(int64_t n, int64_t at = 0) {
        const Matrix *x = &input;
        for (size_t l = 0; l + 1 < layers.size(); ++l) {
            Matrix &y = outputs[l], &slope = slopes[l];
            layers[l].forward(n, x->row(at), x->stride, [&](int64_t i, int64_t j, Floats before) {
                const Floats one = Floats::all(1.0f);
                const Floats gate = one / (one + exponential(Floats::all(0.0f) - before));
                const Floats after = before * gate;
                after.store(y.row(at + i) + j);
                fma(after, one - gate, gate).store(slope.row(at + i) + j);
            });
            x = &y;
        }
        layers.back().forward(n, x->row(at), x->stride, [&](int64_t i, int64_t j, Floats sum) {
            sum.store(out.row(at + i) + j);
        });
    }

    // Computes the gradients of n rows from row `at` on, given the gradient by `out` in `out`; adds
    // them to those of earlier rows unless these are the first.
    void learn(int64_t n, bool are_first, int64_t at = 0) {
        const Matrix *by_output = &out;
        for (size_t l = layers.size(); l-- > 0;) {
            const Matrix &x = l ? outputs[l - 1] : input;
            layers[l].learn(n, x.row(at), x.stride, by_output->row(at), by_output->stride,
                            are_first);
            if (l) by_output = &back(l, n, *by_output, at);
        }
    }

    // Computes the gradient of n rows by some inputs, from input `first` to the last, given the
    // gradient by `out`. Calls finish(i, j, gradient) for row i and input `first` + j.
    template <class Finish> void back_to_inputs(int64_t n, int64_t first, const Finish &finish) {
        const Matrix *by_output = &out;
        for (size_t l = layers.size(); l-- > 1;) by_output = &back(l, n, *by_output, 0);
        const int64_t width = by_output->width();
        for (int64_t j = first; j < layers[0].n_in; ++j) {
            const float *const weights = layers[0].weights_of_input(j);
            for (int64_t i = 0; i < n; ++i) {
                Floats sum = Floats::all(0.0f);
                for (int64_t k = 0; k < width; k += Floats::LANES)
                    sum = fma(Floats::load(by_output->row(i) + k), Floats::load(weights + k), sum);
                finish(i, j - first, total(sum));
            }
        }
    }

    void follow(const Stack &other, float share) {
        for (size_t l = 0; l < layers.size(); ++l) layers[l].follow(other.layers[l], share);
    }

    double squared_norm() const {
        double sum = 0;
        for (const Linear &layer : layers) sum += layer.squared_norm();
        return sum;
    }

    void step(const Adam &adam, float scale) {
        for (Linear &layer : layers) layer.step(adam, scale);
    }

    void write_back() {
        for (Linear &layer : layers) layer.write_back();
    }

    Matrix input;  // (rows, n_in)
    Matrix out;    // (rows, n_out)

  private:
    // Returns the gradient before swish of the layer below layer l, for n rows from row `at` on.
    const Matrix &back(size_t l, int64_t n, const Matrix &by_output, int64_t at) {
        Matrix &slope = slopes[l - 1];  // becomes the gradient
        layers[l].back(n, by_output.row(at), by_output.stride,
                       [&](int64_t i, int64_t j, Floats sum) {
                           float *const entry = slope.row(at + i) + j;
                           (sum * Floats::load(entry)).store(entry);
                       });
        return slope;
    }

    std::vector<Linear> layers;
    std::vector<Matrix> outputs, slopes;  // of the hidden layers, (rows, width)
};

// ------------------------------------------------------------------------------------ actions

constexpr float HALF_LOG_TAU = 0.918938533204672742f;
constexpr float MASKED_LOGIT = -1e8f;

// Replaces the logits of a branch by probabilities, writes their logarithms, and returns the
// entropy.
inline float into_chances(float *logits, const uint8_t *mask, float *log_chances, int64_t n) {
    float largest = -std::numeric_limits<float>::infinity(), sum = 0, entropy = 0;
    for (int64_t j = 0; j < n; ++j) {
        if (mask[j]) logits[j] = MASKED_LOGIT;
        if (!(logits[j] <= largest)) largest = logits[j];  // NaN too
    }
    for (int64_t j = 0; j < n; ++j) sum += std::exp(logits[j] - largest);
    const float log_sum = std::log(sum);
    for (int64_t j = 0; j < n; ++j) {
        log_chances[j] = logits[j] - largest - log_sum;
        logits[j] = std::exp(log_chances[j]);
        entropy -= logits[j] * log_chances[j];
    }
    return entropy;
}

}  // namespace
