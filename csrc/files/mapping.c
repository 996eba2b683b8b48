/* Mapping files and replacing them: the only system calls of the library. */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700 /* realpath */
#endif

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "mapping.h"

static char *copy_of(const char *text, const char *more) {
    size_t n = strlen(text), m = strlen(more);
    char *copy = lookup_alloc(n + m + 1, 1);
    if (copy == NULL) return NULL;
    memcpy(copy, text, n);
    memcpy(copy + n, more, m);
    return copy;
}

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

static wchar_t *wide(const char *path) {
    int n = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
    wchar_t *out = n > 0 ? lookup_alloc((size_t)n, sizeof *out) : NULL;
    if (out != NULL) (void)MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, out, n);
    return out;
}

static lookup_status refused(const char *path, lookup_error *error) {
    lookup_fail(error, "%s: the system refused it (Windows error %lu)", path, (unsigned long)GetLastError());
    return LOOKUP_E_FILE;
}

static HANDLE open_path(const char *path, DWORD access, DWORD share, DWORD how) {
    wchar_t *name = wide(path);
    if (name == NULL) return INVALID_HANDLE_VALUE;
    HANDLE handle = CreateFileW(name, access, share, NULL, how, FILE_ATTRIBUTE_NORMAL, NULL);
    lookup_free(name);
    return handle;
}

lookup_status lookup_map_file(const char *path, mapping *file, lookup_error *error) {
    *file = (mapping){NULL, 0, NULL};
    HANDLE handle = open_path(path, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_WRITE | FILE_SHARE_DELETE, OPEN_EXISTING);
    if (handle == INVALID_HANDLE_VALUE) return refused(path, error);
    LARGE_INTEGER size;
    lookup_status status = LOOKUP_OK;
    if (!GetFileSizeEx(handle, &size)) status = refused(path, error);
    else if (size.QuadPart > 0) {
        file->handle = CreateFileMappingW(handle, NULL, PAGE_READONLY, 0, 0, NULL);
        if (file->handle != NULL) file->data = MapViewOfFile(file->handle, FILE_MAP_READ, 0, 0, 0);
        if (file->data == NULL) status = refused(path, error);
        file->size = (size_t)size.QuadPart;
    }
    CloseHandle(handle);
    if (status != LOOKUP_OK) lookup_unmap_file(file);
    return status;
}

void lookup_unmap_file(mapping *file) {
    if (file->data != NULL) UnmapViewOfFile(file->data);
    if (file->handle != NULL) CloseHandle(file->handle);
    *file = (mapping){NULL, 0, NULL};
}

bool lookup_file_exists(const char *path) {
    wchar_t *name = wide(path);
    bool exists = name != NULL && GetFileAttributesW(name) != INVALID_FILE_ATTRIBUTES;
    lookup_free(name);
    return exists;
}

char *lookup_real_path(const char *path) { return copy_of(path, ""); }

static bool write_all(HANDLE handle, const unsigned char *data, size_t size) {
    while (size > 0) {
        DWORD part = size > 1u << 30 ? 1u << 30 : (DWORD)size, done = 0;
        if (!WriteFile(handle, data, part, &done, NULL) || done == 0) return false;
        data += done;
        size -= done;
    }
    return FlushFileBuffers(handle) != 0;
}

lookup_status lookup_replace_file(const char *path, const void *data, size_t size, lookup_error *error) {
    char *beside = copy_of(path, ".lookup.tmp");
    wchar_t *from = beside != NULL ? wide(beside) : NULL, *to = wide(path);
    lookup_status status = from != NULL && to != NULL ? LOOKUP_OK : LOOKUP_E_MEMORY;
    if (status == LOOKUP_OK) {
        HANDLE handle = open_path(beside, GENERIC_WRITE, 0, CREATE_ALWAYS);
        bool done = handle != INVALID_HANDLE_VALUE && write_all(handle, data, size);
        if (handle != INVALID_HANDLE_VALUE) CloseHandle(handle);
        done = done && MoveFileExW(from, to, MOVEFILE_REPLACE_EXISTING | MOVEFILE_WRITE_THROUGH);
        if (!done) {
            status = refused(path, error);
            DeleteFileW(from);
        }
    }
    lookup_free(beside);
    lookup_free(from);
    lookup_free(to);
    return status;
}

#else
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef O_CLOEXEC
#define O_CLOEXEC 0
#endif

static lookup_status refused(const char *path, lookup_error *error) {
    lookup_fail(error, "%s: %s", path, strerror(errno));
    return LOOKUP_E_FILE;
}

lookup_status lookup_map_file(const char *path, mapping *file, lookup_error *error) {
    *file = (mapping){NULL, 0, NULL};
    struct stat found;
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return refused(path, error);
    lookup_status status = LOOKUP_OK;
    if (fstat(descriptor, &found) != 0) status = refused(path, error);
    else if (!S_ISREG(found.st_mode)) {
        lookup_fail(error, "%s: found a folder, device or pipe, expected a file", path);
        status = LOOKUP_E_FILE;
    } else if (found.st_size > 0) {
        void *data = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_SHARED, descriptor, 0);
        if (data == MAP_FAILED) status = refused(path, error);
        else *file = (mapping){data, (size_t)found.st_size, NULL};
    }
    close(descriptor);
    return status;
}

void lookup_unmap_file(mapping *file) {
    if (file->data != NULL) munmap((void *)(uintptr_t)file->data, file->size);
    *file = (mapping){NULL, 0, NULL};
}

bool lookup_file_exists(const char *path) {
    struct stat found;
    return stat(path, &found) == 0;
}

char *lookup_real_path(const char *path) {
    char *real = realpath(path, NULL);
    char *copy = copy_of(real != NULL ? real : path, "");
    free(real);
    return copy;
}

static bool write_all(int descriptor, const unsigned char *data, size_t size) {
    while (size > 0) {
        ssize_t done = write(descriptor, data, size < 1u << 30 ? size : 1u << 30);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        data += done;
        size -= (size_t)done;
    }
    return fsync(descriptor) == 0;
}

/* So that the rename itself is on the disk. Some file systems cannot; the file is safe anyway. */
static void flush_folder(char *path) {
    char *slash = strrchr(path, '/');
    if (slash == path) slash++;
    if (slash != NULL) *slash = 0;
    int descriptor = open(slash != NULL ? path : ".", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return;
    (void)fsync(descriptor);
    close(descriptor);
}

lookup_status lookup_replace_file(const char *path, const void *data, size_t size, lookup_error *error) {
    struct stat old;
    bool replaced = stat(path, &old) == 0;
    char *beside = copy_of(path, ".XXXXXX");
    CHECK(beside != NULL, LOOKUP_E_MEMORY);
    mode_t mask = umask(0);
    umask(mask);
    int descriptor = mkstemp(beside);
    bool done = descriptor >= 0 && fchmod(descriptor, replaced ? old.st_mode & 07777 : 0666 & ~mask) == 0 &&
                write_all(descriptor, data, size);
    int why = errno;
    if (descriptor >= 0 && close(descriptor) != 0 && done) {
        done = false;
        why = errno;
    }
    if (done && rename(beside, path) != 0) {
        done = false;
        why = errno;
    }
    if (!done && descriptor >= 0) unlink(beside);
    if (done) flush_folder(beside);
    lookup_free(beside);
    errno = why;
    return done ? LOOKUP_OK : refused(path, error);
}
#endif
