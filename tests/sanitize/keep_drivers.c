/* keep_drivers.c: linked into every program of a sanitized build, so that LeakSanitizer can tell a system driver's
 * leaks from ours.  Owns that and nothing else; tests/check_sanitizer.c shows that ours are still found.
 *
 * The Vulkan loader unloads the driver when the last instance ends.  What the driver kept in its globals then looks
 * lost, at addresses of an "<unknown module>" that no suppression can name.  So nothing is unloaded here: what a
 * library's globals hold stays reachable, and what it loses has its file's name, which the list below may suppress. */

int dlclose(void *library);
const char *__lsan_default_suppressions(void);

__attribute__((visibility("default"))) int dlclose(void *library)
{
    (void)library;
    return 0;
}

/* Modules by file name, none of ours: Vulkan drivers (libvulkan_lvp.so, ...) and the software driver's compiler. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void)
{
    return "leak:libvulkan_\nleak:libLLVM\n";
}
