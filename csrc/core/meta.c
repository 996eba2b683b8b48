/* What a cache file says about itself: the JSON in a constmap's annex and in a legacy file's sidecar.
 *
 * A reader for what we write, strict about JSON's form and deaf to keys it does not know. Files are
 * hostile until proven otherwise: every step is bounded by the end, nesting by MOST_DEPTH. */
#include "meta.h"

#define MOST_DEPTH 64
#define ANNEX_MAGIC 0x3178656e6e61746cull /* "ltannex1" */

typedef struct {
    const char *p, *end;
} cursor;

static void skip_space(cursor *c) {
    while (c->p < c->end && (*c->p == ' ' || *c->p == '\n' || *c->p == '\r' || *c->p == '\t')) c->p++;
}

static bool take(cursor *c, char expected) {
    skip_space(c);
    if (c->p >= c->end || *c->p != expected) return false;
    c->p++;
    return true;
}

static bool next_is(cursor *c, char expected) {
    skip_space(c);
    return c->p < c->end && *c->p == expected;
}

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* A byte of a string that goes to `out`, if there is space; what does not fit is cut. */
static void put(char *out, size_t capacity, size_t *used, uint32_t byte) {
    if (*used + 1 < capacity) out[(*used)++] = (char)byte;
}

static void put_character(char *out, size_t capacity, size_t *used, uint32_t c) {
    if (c < 0x80) {
        put(out, capacity, used, c);
        return;
    }
    size_t more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
    if (*used + more + 1 >= capacity) return;
    static const uint32_t LEAD[] = {0, 0xC0, 0xE0, 0xF0};
    put(out, capacity, used, LEAD[more] | c >> (6 * more));
    while (more-- > 0) put(out, capacity, used, 0x80 | (c >> (6 * more) & 0x3F));
}

static bool read_hex4(cursor *c, uint32_t *value) {
    *value = 0;
    for (int i = 0; i < 4; ++i, c->p++) {
        int digit = c->p < c->end ? hex_digit(*c->p) : -1;
        if (digit < 0) return false;
        *value = *value << 4 | (uint32_t)digit;
    }
    return true;
}

static bool read_escape(cursor *c, uint32_t *value) {
    static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
    if (c->p >= c->end) return false;
    char kind = *c->p++;
    const char *at = kind != 0 ? strchr(FROM, kind) : NULL;
    if (at != NULL) {
        *value = (unsigned char)TO[at - FROM];
        return true;
    }
    uint32_t low = 0;
    if (kind != 'u' || !read_hex4(c, value)) return false;
    if (*value >= 0xD800 && *value < 0xDC00 && c->end - c->p >= 6 && c->p[0] == '\\' && c->p[1] == 'u') {
        cursor ahead = {c->p + 2, c->end};
        if (read_hex4(&ahead, &low) && low >= 0xDC00 && low < 0xE000) {
            *value = 0x10000 + ((*value - 0xD800) << 10) + (low - 0xDC00);
            *c = ahead;
        }
    }
    return true;
}

/* A string into out[0..capacity), ended with 0 and cut to fit; `out` may be NULL with capacity 0. */
static bool read_string(cursor *c, char *out, size_t capacity) {
    size_t used = 0;
    if (!take(c, '"')) return false;
    while (c->p < c->end && *c->p != '"') {
        uint32_t value = (unsigned char)*c->p++;
        if (value < 0x20) return false;
        if (value != '\\') put(out, capacity, &used, value);
        else if (read_escape(c, &value)) put_character(out, capacity, &used, value);
        else return false;
    }
    if (capacity > 0) out[used] = 0;
    return take(c, '"');
}

static bool skip_word(cursor *c, const char *word) {
    size_t n = strlen(word);
    if ((size_t)(c->end - c->p) < n || memcmp(c->p, word, n) != 0) return false;
    c->p += n;
    return true;
}

static bool skip_number(cursor *c) {
    const char *start = c->p;
    while (c->p < c->end && *c->p != 0 && strchr("+-.0123456789eE", *c->p) != NULL) c->p++;
    return c->p > start;
}

static bool skip_value(cursor *c, int depth) {
    skip_space(c);
    if (depth == 0 || c->p >= c->end) return false;
    char open = *c->p;
    if (open == '"') return read_string(c, NULL, 0);
    if (open != '{' && open != '[')
        return skip_word(c, "null") || skip_word(c, "true") || skip_word(c, "false") || skip_number(c);
    char close = open == '{' ? '}' : ']';
    c->p++;
    if (take(c, close)) return true;
    do {
        if (open == '{' && !(read_string(c, NULL, 0) && take(c, ':'))) return false;
        if (!skip_value(c, depth - 1)) return false;
    } while (take(c, ','));
    return take(c, close);
}

/* A whole number >= 0. */
static bool read_count(cursor *c, uint64_t *value) {
    skip_space(c);
    const char *start = c->p;
    *value = 0;
    for (; c->p < c->end && *c->p >= '0' && *c->p <= '9'; c->p++) {
        if (*value > (UINT64_MAX - 9) / 10) return false;
        *value = *value * 10 + (uint64_t)(*c->p - '0');
    }
    return c->p > start;
}

/* Calls `field` with the name of each member of an object, to read or skip its value. */
typedef bool (*field_reader)(cursor *c, const char *name, void *into);

static bool read_object(cursor *c, field_reader field, void *into) {
    char name[32];
    if (!take(c, '{')) return false;
    if (take(c, '}')) return true;
    do {
        if (!read_string(c, name, sizeof name) || !take(c, ':') || !field(c, name, into)) return false;
    } while (take(c, ','));
    return take(c, '}');
}

static bool read_text_or_null(cursor *c, char *out, size_t capacity) {
    if (!next_is(c, 'n')) return read_string(c, out, capacity);
    out[0] = 0;
    return skip_word(c, "null");
}

static bool read_count_or_null(cursor *c, uint64_t *value) {
    *value = 0;
    return next_is(c, 'n') ? skip_word(c, "null") : read_count(c, value);
}

static bool read_hex64(const char *text, uint64_t *value) {
    *value = 0;
    for (int i = 0; i < 16; ++i) {
        if (hex_digit(text[i]) < 0) return false;
        *value = *value << 4 | (uint64_t)hex_digit(text[i]);
    }
    return text[16] == 0;
}

static bool meta_field(cursor *c, const char *name, void *into) {
    lookup_file_info *info = into;
    uint64_t count = 0;
    char hex[20] = "";
    if (strcmp(name, "kind") == 0) return read_string(c, info->kind, sizeof info->kind);
    if (strcmp(name, "tokenizer") == 0) return read_text_or_null(c, info->tokenizer, sizeof info->tokenizer);
    if (strcmp(name, "fingerprint") == 0) return read_text_or_null(c, info->fingerprint, sizeof info->fingerprint);
    if (strcmp(name, "n_ngrams") == 0) return read_count(c, &info->n_ngrams);
    if (strcmp(name, "n_pairs") == 0) return read_count(c, &info->n_pairs);
    if (strcmp(name, "vocab_size") == 0) {
        if (!read_count_or_null(c, &count) || count > INT32_MAX) return false;
        info->n_vocab = (int32_t)count;
        return true;
    }
    if (strcmp(name, "text_fingerprint") == 0)
        return read_text_or_null(c, hex, sizeof hex) && (hex[0] == 0 || read_hex64(hex, &info->vocabulary));
    return skip_value(c, MOST_DEPTH);
}

lookup_status lookup_meta_read(const char *data, size_t size, lookup_file_info *info) {
    cursor c = {data, data + size};
    CHECK(read_object(&c, meta_field, info), LOOKUP_E_KEYS);
    skip_space(&c);
    CHECK(c.p == c.end, LOOKUP_E_KEYS);
    info->has_meta = 1;
    return LOOKUP_OK;
}

typedef struct {
    uint64_t bytes, hash;     /* of the file asked for */
    lookup_file_info *info;
    bool found, known_format;
    uint64_t here_bytes, here_hash;
    cursor here_meta;         /* of the record at hand */
} sidecar;

static bool record_field(cursor *c, const char *name, void *into) {
    sidecar *s = into;
    char hex[20];
    if (strcmp(name, "size") == 0) return read_count(c, &s->here_bytes);
    if (strcmp(name, "xxh64") == 0) return read_string(c, hex, sizeof hex) && read_hex64(hex, &s->here_hash);
    if (strcmp(name, "meta") != 0) return skip_value(c, MOST_DEPTH);
    skip_space(c);
    s->here_meta.p = c->p;
    if (!skip_value(c, MOST_DEPTH)) return false;
    s->here_meta.end = c->p;
    return true;
}

static bool read_record(cursor *c, sidecar *s) {
    s->here_bytes = s->here_hash = 0;
    s->here_meta = (cursor){NULL, NULL};
    if (!read_object(c, record_field, s) || s->here_meta.p == NULL) return false;
    if (s->found || s->here_bytes != s->bytes || s->here_hash != s->hash) return true;
    s->found = true;
    size_t size = (size_t)(s->here_meta.end - s->here_meta.p);
    return *s->here_meta.p == 'n' || lookup_meta_read(s->here_meta.p, size, s->info) == LOOKUP_OK;
}

static bool sidecar_field(cursor *c, const char *name, void *into) {
    sidecar *s = into;
    char format[40];
    if (strcmp(name, "format") == 0) {
        if (!read_string(c, format, sizeof format)) return false;
        s->known_format = strcmp(format, "lookup-tools sidecar 1") == 0;
        return s->known_format;
    }
    if (strcmp(name, "files") != 0) return skip_value(c, MOST_DEPTH);
    if (!take(c, '[')) return false;
    do {
        if (!read_record(c, s)) return false;
    } while (take(c, ','));
    return take(c, ']');
}

lookup_status lookup_meta_sidecar(const char *data, size_t size, uint64_t file_bytes, uint64_t file_hash, lookup_file_info *info, int *found) {
    sidecar s = {.bytes = file_bytes, .hash = file_hash, .info = info};
    cursor c = {data, data + size};
    CHECK(read_object(&c, sidecar_field, &s) && s.known_format, LOOKUP_E_KEYS);
    *found = s.found;
    return LOOKUP_OK;
}

/* The annex, behind up to 7 bytes of padding: magic, length and text of the metadata, length and bytes
 * of the keys, a hash; then the length of all and the magic again (docs/format.md). */
lookup_status lookup_meta_annex(const unsigned char *data, size_t size, const char **meta, size_t *meta_size) {
    *meta = NULL;
    if (size < 16 || load64(data + size - 8) != ANNEX_MAGIC) return LOOKUP_OK;
    uint64_t length = load64(data + size - 16);
    CHECK(length <= size && size - length < 8 && length >= 48, LOOKUP_E_KEYS);
    const unsigned char *start = data + (size - length);
    CHECK(load64(start) == ANNEX_MAGIC, LOOKUP_E_KEYS);
    uint64_t text = load64(start + 8), left = length - 48; /* beside two magics, three lengths, a hash */
    CHECK(text <= left && load64(start + 16 + text) == left - text, LOOKUP_E_KEYS);
    *meta = (const char *)start + 16;
    *meta_size = (size_t)text;
    return LOOKUP_OK;
}

size_t lookup_meta_quote(const char *text, char *out, size_t capacity) {
    static const char HEX[] = "0123456789abcdef";
    size_t used = 0;
#define EMIT(c)                                                                                    \
    do {                                                                                           \
        if (used < capacity) out[used] = (char)(c);                                                \
        ++used;                                                                                    \
    } while (0)
    EMIT('"');
    for (; *text != 0; ++text) {
        unsigned char c = (unsigned char)*text;
        if (c >= 0x20 && c != '"' && c != '\\') {
            EMIT(c);
            continue;
        }
        EMIT('\\');
        if (c >= 0x20) {
            EMIT(c);
            continue;
        }
        EMIT('u');
        EMIT('0');
        EMIT('0');
        EMIT(HEX[c >> 4]);
        EMIT(HEX[c & 15]);
    }
    EMIT('"');
#undef EMIT
    return used;
}
