// Collectives among the GMIs of one GPU over slabs that every member has mapped (CUDA IPC).
//
// Compiled at run time for one group size; ipc_layout.py defines MEMBERS, CALLS, FINISHED, FAILED, SLABS (words of
// the private state) and ABORT_OFFSET, FLAGS_OFFSET, DATA_OFFSET, FLAGS_PER_CTA (the slab).
//
// A call has two phases with data (copy in; reduce) or three (and gather), with a meeting of all members between
// them. A meeting is held by each CTA with the CTAs of the same index in the other members, never by whole grids:
// CTA b of a member touches only what CTA b of another member wrote. Tickets grow with every call and are computed
// from a counter in device memory, so a captured graph can be replayed.
//
// Calls alternate between the two halves of the data. A member that writes a half in call e + 2 has met all members
// in call e + 1, which they entered after call e was over, so nobody reads that half any more.
//
// Nothing waits for ever: a meeting that is not complete in time writes a report to host memory, tells the peers
// through their abort words, and lets the kernel run out. A member that failed skips all later calls.

struct Arguments {
    u64 user;        // the caller's tensor
    u64 elements;    // its length
    u64 state;       // private words of this member
    u64 report;      // eight words of pinned host memory
    u64 timeout_ns;
    u64 half_bytes;  // size of one half of a slab's data
    u32 rank;
    u32 root;        // the only member that gets the result, or EVERYBODY; the source of a broadcast
    u32 op;
    u32 algorithm;
    u32 phases;      // bits; ALL_PHASES means that the members meet on the device
    u32 reserved;
};

constexpr u32 SUM = 0, MAX = 1;  // 2 is min
constexpr u32 ONE_SHOT = 0;      // 1 is two-shot
constexpr u32 COPY_IN = 1, REDUCE = 2, GATHER = 4, ALL_PHASES = 7;
constexpr u32 EVERYBODY = 0xffffffffu;
constexpr u64 TIMED_OUT = 1, ABORTED = 2;
constexpr u32 GROUP = MEMBERS < 4 ? MEMBERS : 4;  // slabs read at once: loads in flight against registers

__device__ __forceinline__ u32 least(u32 left, u32 right) { return left < right ? left : right; }
__device__ __forceinline__ u32 ceil_div(u32 count, u32 size) { return (count + size - 1) / size; }
__device__ __forceinline__ u64* state_of(const Arguments& a) { return reinterpret_cast<u64*>(a.state); }
__device__ __forceinline__ u64 slab(const Arguments& a, u32 member) { return state_of(a)[SLABS + member]; }
__device__ __forceinline__ u64* abort_word(u64 base) { return reinterpret_cast<u64*>(base + ABORT_OFFSET); }

__device__ __forceinline__ u64* flag(u64 base, u32 from) {
    return reinterpret_cast<u64*>(base + FLAGS_OFFSET) + blockIdx.x * FLAGS_PER_CTA + from;
}

__device__ __forceinline__ uint4* half(const Arguments& a, u32 member, u64 call) {
    return reinterpret_cast<uint4*>(slab(a, member) + DATA_OFFSET + (call & 1) * a.half_bytes);
}

// ---- failure ------------------------------------------------------------------------------------------------------

__device__ void report(const Arguments& a, u64 code, u64 call, u64 missing, u64 reporter, u32 meeting) {
    if (atomicCAS(state_of(a) + FAILED, 0ull, code) != 0) return;  // the first report of a member stands
    u64* words = reinterpret_cast<u64*>(a.report);
    words[1] = call;
    words[2] = missing;
    words[3] = reporter;
    words[4] = meeting;
    words[5] = blockIdx.x;
    words[6] = a.algorithm;
    words[7] = a.op;
    store_release(words, code);
}

__device__ void report_verdict(const Arguments& a, u64 call, u64 verdict, u32 meeting) {
    report(a, ABORTED, call, (verdict >> 32) - 1, (verdict & 0xffffffffull) - 1, meeting);
}

__device__ void give_up(const Arguments& a, u64 call, u32 missing, u32 meeting) {
    report(a, TIMED_OUT, call, missing, a.rank, meeting);
    const u64 verdict = (static_cast<u64>(missing + 1) << 32) | (a.rank + 1);
    for (u32 member = 0; member < MEMBERS; ++member) store_release(abort_word(slab(a, member)), verdict);
}

// ---- meetings -----------------------------------------------------------------------------------------------------

__device__ bool await_peer(const Arguments& a, u32 peer, u64 call, u32 meeting, u64 ticket) {
    const u64 own = slab(a, a.rank);
    const u64* arrived = flag(own, peer);
    u64 start = 0;
    for (u32 turn = 1; load_acquire(arrived) < ticket; ++turn) {
        if (turn % 64 != 0) continue;
        const u64 verdict = load_acquire(abort_word(own));
        if (verdict != 0) {
            report_verdict(a, call, verdict, meeting);
            return false;
        }
        const u64 now = nanoseconds();
        if (start == 0) start = now;
        if (now - start > a.timeout_ns) {
            give_up(a, call, peer, meeting);
            return false;
        }
        rest();
    }
    return true;
}

// True when this CTA's counterparts in all members have come, and their writes before it are visible here.
__device__ bool meet(const Arguments& a, u64 call, u32 meeting) {
    if (a.phases != ALL_PHASES) return true;  // the hosts meet between launches instead
    int failed = 0;
    __syncthreads();
    const u32 peer = threadIdx.x;
    if (peer < MEMBERS && peer != a.rank) {
        const u64 ticket = 2 * call + meeting + 1;
        store_release(flag(slab(a, peer), a.rank), ticket);
        failed = await_peer(a, peer, call, meeting, ticket) ? 0 : 1;
    }
    return __syncthreads_or(failed) == 0;
}

__device__ bool begin_call(const Arguments& a, u64* call) {
    *call = *const_cast<volatile u64*>(state_of(a) + CALLS);
    int dead = 0;
    if (threadIdx.x == 0) {
        const u64 verdict = load_acquire(abort_word(slab(a, a.rank)));
        if (verdict != 0) report_verdict(a, *call, verdict, 0);
        dead = *const_cast<volatile u64*>(state_of(a) + FAILED) != 0;
    }
    return __syncthreads_or(dead) == 0;
}

// The last CTA to finish advances the call counter; all have read it by then.
__device__ void end_call(const Arguments& a, u64 call) {
    __syncthreads();
    if (threadIdx.x != 0 || (a.phases & GATHER) == 0) return;
    __threadfence();
    u64* state = state_of(a);
    if (atomicAdd(state + FINISHED, 1ull) == gridDim.x - 1) {
        state[FINISHED] = 0;
        state[CALLS] = call + 1;
    }
}

// ---- packs: 16 bytes of the caller's tensor -----------------------------------------------------------------------
// The caller's tensor is aligned to a pack. What does not fill the last pack is the tail, handled apart by CTA 0.

template <class T>
constexpr u32 LANES = 16 / sizeof(T);

template <class T>
union Pack {
    uint4 bits;
    T lane[LANES<T>];
};

__device__ __forceinline__ uint4* user(const Arguments& a) { return reinterpret_cast<uint4*>(a.user); }
__device__ __forceinline__ bool wants_result(const Arguments& a) { return a.root == EVERYBODY || a.root == a.rank; }

template <class T>
__device__ __forceinline__ T combine(u32 op, T left, T right) {
    if (op == SUM) return left + right;
    const bool keep = op == MAX ? left > right : left < right;
    return keep || left != left ? left : right;  // NaN wins
}

// The reduction of one pack over all members, always in rank order: the same bits wherever it is computed.
template <class T>
__device__ __forceinline__ uint4 fold(const Arguments& a, u64 call, u32 pack) {
    Pack<T> total;
#pragma unroll 1
    for (u32 base = 0; base < MEMBERS; base += GROUP) {
        Pack<T> part[GROUP];
#pragma unroll
        for (u32 i = 0; i < GROUP; ++i) {
            const u32 member = base + i;
            if (member < MEMBERS)
                part[i].bits = member == a.rank ? user(a)[pack] : load_shared(half(a, member, call) + pack);
        }
#pragma unroll
        for (u32 i = 0; i < GROUP; ++i) {
            if (base + i >= MEMBERS) break;
#pragma unroll
            for (u32 lane = 0; lane < LANES<T>; ++lane)
                total.lane[lane] = base + i == 0 ? part[0].lane[lane]
                                                 : combine<T>(a.op, total.lane[lane], part[i].lane[lane]);
        }
    }
    return total.bits;
}

// Copies packs [begin, end) with four loads in flight per thread.
__device__ __forceinline__ void copy_packs(uint4* target, const uint4* source, u32 begin, u32 end) {
    for (u32 first = begin + threadIdx.x; first < end; first += 4 * blockDim.x) {
        uint4 held[4];
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            if (first + i * blockDim.x < end) held[i] = load_shared(source + first + i * blockDim.x);
#pragma unroll
        for (u32 i = 0; i < 4; ++i)
            if (first + i * blockDim.x < end) target[first + i * blockDim.x] = held[i];
    }
}

// Packs [begin, end) of every shard but this member's own. INTO_SLAB: from the caller to the own slab; otherwise
// from the slabs of the shards' owners to the caller.
template <bool INTO_SLAB>
__device__ __forceinline__ void move_foreign_shards(
    const Arguments& a, u64 call, u32 shard, u32 packs, u32 begin, u32 end) {
    constexpr u32 depth = MEMBERS < 4 ? 4 / GROUP : 1;
    for (u32 first = begin + threadIdx.x; first < end; first += depth * blockDim.x) {
#pragma unroll 1
        for (u32 base = 0; base < MEMBERS; base += GROUP) {
            uint4 held[depth * GROUP];
#pragma unroll
            for (u32 i = 0; i < depth * GROUP; ++i) {
                const u32 owner = base + i % GROUP;
                const u32 at = first + i / GROUP * blockDim.x, pack = owner * shard + at;
                if (owner < MEMBERS && owner != a.rank && at < end && pack < packs)
                    held[i] = load_shared((INTO_SLAB ? user(a) : half(a, owner, call)) + pack);
            }
#pragma unroll
            for (u32 i = 0; i < depth * GROUP; ++i) {
                const u32 owner = base + i % GROUP;
                const u32 at = first + i / GROUP * blockDim.x, pack = owner * shard + at;
                if (owner < MEMBERS && owner != a.rank && at < end && pack < packs)
                    (INTO_SLAB ? half(a, a.rank, call) : user(a))[pack] = held[i];
            }
        }
    }
}

// The element of the tail that this thread handles, or nothing.
template <class T>
__device__ __forceinline__ bool tail_lane(const Arguments& a, u32 packs) {
    return blockIdx.x == 0 && threadIdx.x < a.elements - static_cast<u64>(packs) * LANES<T>;
}

template <class T>
__device__ __forceinline__ volatile T* tail_of(uint4* data, u32 packs) {
    return reinterpret_cast<volatile T*>(data + packs) + threadIdx.x;
}

template <class T>
__device__ __forceinline__ void fold_tail(const Arguments& a, u64 call, u32 packs) {
    if (!tail_lane<T>(a, packs) || !wants_result(a)) return;
    T total = *tail_of<T>(half(a, 0, call), packs);
#pragma unroll 1
    for (u32 member = 1; member < MEMBERS; ++member)
        total = combine<T>(a.op, total, *tail_of<T>(half(a, member, call), packs));
    *tail_of<T>(user(a), packs) = total;
}

// ---- algorithms ---------------------------------------------------------------------------------------------------

// Everybody publishes everything and reduces everything: one meeting, for short tensors.
template <class T>
__device__ __forceinline__ void one_shot(const Arguments& a, u64 call, u32 packs) {
    const u32 part = ceil_div(packs, gridDim.x);
    const u32 begin = least(blockIdx.x * part, packs), end = least(begin + part, packs);
    if (a.phases & COPY_IN) copy_packs(half(a, a.rank, call), user(a), begin, end);
    if (!meet(a, call, 0)) return;
    if ((a.phases & REDUCE) == 0) return;
    fold_tail<T>(a, call, packs);
    if (!wants_result(a)) return;
    for (u32 pack = begin + threadIdx.x; pack < end; pack += blockDim.x) user(a)[pack] = fold<T>(a, call, pack);
}

// Reduce-scatter and all-gather: member r reduces shard r. Each CTA works on the same part of every shard.
template <class T>
__device__ __forceinline__ void two_shot(const Arguments& a, u64 call, u32 packs) {
    const u32 shard = ceil_div(packs, MEMBERS), part = ceil_div(shard, gridDim.x);
    const u32 begin = least(blockIdx.x * part, shard), end = least(begin + part, shard);
    if (a.phases & COPY_IN) move_foreign_shards<true>(a, call, shard, packs, begin, end);
    if (!meet(a, call, 0)) return;
    if (a.phases & REDUCE) {
        fold_tail<T>(a, call, packs);
        const u32 mine = a.rank * shard, last = least(mine + end, packs);
        for (u32 pack = mine + begin + threadIdx.x; pack < last; pack += blockDim.x) {
            const uint4 total = fold<T>(a, call, pack);
            half(a, a.rank, call)[pack] = total;
            if (wants_result(a)) user(a)[pack] = total;
        }
    }
    if (!meet(a, call, 1)) return;
    if ((a.phases & GATHER) && wants_result(a)) move_foreign_shards<false>(a, call, shard, packs, begin, end);
}

template <class T>
__device__ __forceinline__ void all_reduce(const Arguments& a) {
    u64 call;
    if (begin_call(a, &call)) {
        const u32 packs = a.elements / LANES<T>;
        if ((a.phases & COPY_IN) && tail_lane<T>(a, packs))
            *tail_of<T>(half(a, a.rank, call), packs) = *tail_of<T>(user(a), packs);
        if (a.algorithm == ONE_SHOT)
            one_shot<T>(a, call, packs);
        else
            two_shot<T>(a, call, packs);
    }
    end_call(a, call);
}

#define KERNEL extern "C" __global__ void __launch_bounds__(256, 4)

KERNEL all_reduce_f32(const __grid_constant__ Arguments a) { all_reduce<float>(a); }
KERNEL all_reduce_f64(const __grid_constant__ Arguments a) { all_reduce<double>(a); }
KERNEL all_reduce_i32(const __grid_constant__ Arguments a) { all_reduce<int>(a); }
KERNEL all_reduce_i64(const __grid_constant__ Arguments a) { all_reduce<long long>(a); }

// `elements` are bytes here. With none of them it is a barrier.
KERNEL broadcast(const __grid_constant__ Arguments a) {
    u64 call;
    if (begin_call(a, &call)) {
        const u32 packs = a.elements / 16, part = ceil_div(packs, gridDim.x);
        const u32 begin = least(blockIdx.x * part, packs), end = least(begin + part, packs);
        const bool tail = tail_lane<unsigned char>(a, packs), source = a.rank == a.root;
        if ((a.phases & COPY_IN) && source) {
            copy_packs(half(a, a.rank, call), user(a), begin, end);
            if (tail) *tail_of<unsigned char>(half(a, a.rank, call), packs) = *tail_of<unsigned char>(user(a), packs);
        }
        if (meet(a, call, 0) && (a.phases & REDUCE) && !source) {
            copy_packs(user(a), half(a, a.root, call), begin, end);
            if (tail) *tail_of<unsigned char>(user(a), packs) = *tail_of<unsigned char>(half(a, a.root, call), packs);
        }
    }
    end_call(a, call);
}
