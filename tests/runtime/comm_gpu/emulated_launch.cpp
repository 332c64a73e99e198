// Comes after the kernels: a group of members that make calls one after the other, each member on threads of its own.

struct Launch {  // one member's part of one call; `kernel` 0..3: all_reduce f32 f64 i32 i64, 4: broadcast
    Arguments arguments;
    u32 kernel, ctas, present, delay_us;
};

static void run_kernel(const Launch& launch) {
    switch (launch.kernel) {
        case 0: return all_reduce_f32(launch.arguments);
        case 1: return all_reduce_f64(launch.arguments);
        case 2: return all_reduce_i32(launch.arguments);
        case 3: return all_reduce_i64(launch.arguments);
        default: return broadcast(launch.arguments);
    }
}

// Launches of a stream run one after the other: every thread of a member waits at `gate` between two calls. All begin
// when the last one is there, since making them takes long on a busy machine, and kernels wait for each other by time.
static void run_thread(const Launch* launches, u32 calls, u32 cta, u32 thread, u32 threads,
                       std::vector<std::unique_ptr<Block>>& blocks, std::barrier<>& gate, std::barrier<>& start) {
    threadIdx.x = thread;
    blockIdx.x = cta;
    blockDim.x = threads;
    block = blocks[cta].get();
    start.arrive_and_wait();
    for (u32 call = 0; call < calls; ++call) {
        const Launch& launch = launches[call];
        gridDim.x = launch.ctas;
        if (launch.delay_us) std::this_thread::sleep_for(std::chrono::microseconds(launch.delay_us));
        if (launch.present && cta < launch.ctas) run_kernel(launch);
        gate.arrive_and_wait();
    }
}

extern "C" void run_group(const Launch* launches, u32 members, u32 calls, u32 ctas, u32 threads) {
    std::vector<std::vector<std::unique_ptr<Block>>> blocks(members);
    std::vector<std::unique_ptr<std::barrier<>>> gates;
    std::barrier<> start(members * ctas * threads);
    std::vector<std::thread> pool;
    for (u32 member = 0; member < members; ++member) {
        gates.push_back(std::make_unique<std::barrier<>>(ctas * threads));
        for (u32 cta = 0; cta < ctas; ++cta) blocks[member].push_back(std::make_unique<Block>(threads));
    }
    for (u32 member = 0; member < members; ++member)
        for (u32 cta = 0; cta < ctas; ++cta)
            for (u32 thread = 0; thread < threads; ++thread)
                pool.emplace_back(run_thread, launches + static_cast<size_t>(member) * calls, calls, cta, thread,
                                  threads, std::ref(blocks[member]), std::ref(*gates[member]), std::ref(start));
    for (auto& worker : pool) worker.join();
}
