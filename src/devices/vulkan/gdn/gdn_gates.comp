#version 450
/* gdn_gates: alpha -> a * softplus(alpha + dt), beta -> sigmoid(beta); n rows of h heads with `channels` alphas each, or one. */
#define SLOTS 4
#define ARGS ARGPTR alpha; ARGPTR beta; ARGPTR a; ARGPTR dt; uint n; uint h; uint channels;
#include "devices/vulkan/core/kv.glsl"
layout(local_size_x = 128) in;

/* log(1 + e): a series where the sum would round e away. */
float log1p_of(float e)
{
    return e < 0.01 ? e * (1.0 - e * (0.5 - e * (1.0 / 3.0 - e * 0.25))) : log(1.0 + e);
}

void main()
{
    const uint d = max(args.channels, 1u), u = group_at() * GROUP + gl_LocalInvocationIndex, j = u % (args.h * d);
    PTR alpha = P(0, alpha), beta = P(1, beta), a = P(2, a), dt = P(3, dt);
    if (u >= args.n * args.h * d)
        return;
    const float x = ldf(alpha, u) + ldf(dt, j);
    stf(alpha, u, ldf(a, j / d) * (x > 20.0 ? x : log1p_of(exp(x))));
    if (u < args.n * args.h)
        stf(beta, u, sigmoid(ldf(beta, u)));
}
