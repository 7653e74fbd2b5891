/* ui.c: the files of the web page, as bytes in the program (cmake/embed.cmake makes the table from src/server/ui/). */
#include <string.h>
#include "server/server_impl.h"

#include "ui_files.inc"

const ui_file *ui_find(const char *name)
{
    for (size_t i = 0; i < sizeof ui_files / sizeof *ui_files; i++)
        if (strcmp(ui_files[i].name, name) == 0)
            return &ui_files[i];
    return NULL;
}

const char *ui_type(const char *name)
{
    const char *dot = strrchr(name, '.');

    if (dot && strcmp(dot, ".js") == 0)
        return "text/javascript; charset=utf-8";
    if (dot && strcmp(dot, ".css") == 0)
        return "text/css; charset=utf-8";
    return "text/html; charset=utf-8";
}
