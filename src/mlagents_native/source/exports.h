// Functions that Python calls. They take pointers and numbers and never throw. Nothing that they
// allocate outlives the call, except what a function named `..._new` returns.
#pragma once

#include <cstdint>
#include <exception>

#ifdef _WIN32
#define NATIVE_EXPORT extern "C" __declspec(dllexport)
#else
#define NATIVE_EXPORT extern "C" __attribute__((visibility("default")))
#endif

// Returns the result of a function, or -1 if it throws, as it does if there is no memory.
template <typename Function>
int64_t or_minus_one(Function function) {
    try {
        return function();
    } catch (const std::exception &) {
        return -1;
    }
}
