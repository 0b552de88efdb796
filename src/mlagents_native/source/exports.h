// Functions that Python calls. They take pointers and numbers, allocate nothing that outlives the
// call, and never throw.
#pragma once

#ifdef _WIN32
#define NATIVE_EXPORT extern "C" __declspec(dllexport)
#else
#define NATIVE_EXPORT extern "C" __attribute__((visibility("default")))
#endif
