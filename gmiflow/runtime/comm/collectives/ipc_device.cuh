// What the kernels of `ipc` need from the machine: ordered loads and stores, time, rest.
//
// The tests put another file with the same names in front of `ipc_kernels.cu` and run the kernels on CPU threads.
// Scope is .sys and not .gpu: the members are separate programs, and .gpu covers one program only.

typedef unsigned int u32;
typedef unsigned long long u64;

__device__ __forceinline__ u64 load_acquire(const u64* place) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(place) : "memory");
    return value;
}

__device__ __forceinline__ void store_release(u64* place, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(place), "l"(value) : "memory");
}

// 16 bytes that another process wrote: from the L2 cache, because the L1 caches are not coherent.
__device__ __forceinline__ uint4 load_shared(const uint4* place) {
    uint4 value;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "l"(place)
                 : "memory");
    return value;
}

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

__device__ __forceinline__ void rest() { __nanosleep(64); }
