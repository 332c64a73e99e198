// Stands in for `ipc_device.cuh` and the CUDA language: kernels of `ipc_kernels.cu` run on CPU threads, one thread per
// CUDA thread, so that the thread sanitizer can watch their protocol.
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <thread>
#include <vector>

typedef unsigned int u32;
typedef unsigned long long u64;

#define __device__
#define __global__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct uint4 {
    u32 x, y, z, w;
};
struct Index {
    u32 x;
};

struct Block {  // what the threads of one CTA share
    explicit Block(u32 threads) : gate(threads) {}
    std::barrier<> gate;
    std::atomic<int> any{0};
};

inline thread_local Index threadIdx, blockIdx, blockDim, gridDim;
inline thread_local Block* block = nullptr;

inline void __syncthreads() { block->gate.arrive_and_wait(); }

inline int __syncthreads_or(int value) {
    if (value) block->any.store(1);
    block->gate.arrive_and_wait();
    const int result = block->any.load();
    block->gate.arrive_and_wait();
    if (threadIdx.x == 0) block->any.store(0);
    block->gate.arrive_and_wait();
    return result;
}

inline void __threadfence() {}
inline u64 atomicAdd(u64* place, u64 value) { return std::atomic_ref<u64>(*place).fetch_add(value); }
inline u64 atomicCAS(u64* place, u64 expected, u64 desired) {
    std::atomic_ref<u64>(*place).compare_exchange_strong(expected, desired);
    return expected;
}
inline u64 load_acquire(const u64* place) {
    return std::atomic_ref<u64>(*const_cast<u64*>(place)).load(std::memory_order_acquire);
}
inline void store_release(u64* place, u64 value) {
    std::atomic_ref<u64>(*place).store(value, std::memory_order_release);
}
inline uint4 load_shared(const uint4* place) { return *place; }
inline u64 nanoseconds() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}
inline void rest() { std::this_thread::yield(); }
