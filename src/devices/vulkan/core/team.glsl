/* team.glsl: 32 threads that use matrix units together: a subgroup (FAST), or 32 neighbours of a workgroup, all of which
 * wait where one team would. */
#ifdef FAST
#extension GL_NV_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#define team_wait() \
    controlBarrier(gl_ScopeSubgroup, gl_ScopeSubgroup, gl_StorageSemanticsShared, gl_SemanticsAcquireRelease)
#define LANE gl_SubgroupInvocationID
#define LANES gl_SubgroupSize
#define TEAM gl_SubgroupID
#else
#define team_wait() barrier()
#define LANE (gl_LocalInvocationIndex & 31u)
#define LANES 32u
#define TEAM (gl_LocalInvocationIndex >> 5)
#endif
