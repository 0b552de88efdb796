// Functions that Python calls. They take pointers and numbers and never throw. Nothing that they
// allocate outlives the call, except what a function named `..._new` returns.
#pragma once

#ifdef _WIN32
#define NATIVE_EXPORT extern "C" __declspec(dllexport)
#else
#define NATIVE_EXPORT extern "C" __attribute__((visibility("default")))
#endif
