/* Asks an edged daemon and prints the answer as it is written. Plain C and libzmq, nothing else:
 *
 *     cc -O2 -Wall -Wextra -o ask ask.c -lzmq
 *     ./ask ipc:///run/edged/request.sock "Why is the sky blue?"
 *     ./ask tcp://box:5555 "Why is the sky blue?" kitchen.key_secret server.key
 *
 * The two files are what `edgectl keys client kitchen --out DIR` writes on the box. The id is made once. Whatever goes
 * wrong (no answer, silence, a gap, a retryable error, the daemon killed and started again) the same request with the
 * same id is sent again over a fresh socket: the daemon runs it once, and answers a repetition with ticket, snapshot and
 * rest. Another topic in the ticket: it had to begin anew. Exit status: 0 the whole text was printed, 1 an error reply,
 * a text cut off or keys that do not fit, 2 usage, 3 no answer in time, 130 Ctrl-C. */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

enum { SILENCE_MS = 10000, PAUSE_MS = 500, DEADLINE_MS = 120000 };
enum outcome { AGAIN, DONE, FAILED };

static volatile sig_atomic_t interrupted;
static void on_interrupt(int signal) { (void)signal, interrupted = 1; }

struct stream {
    char id[64];
    char topic[64];   /* of the run that is being printed */
    size_t printed;   /* bytes of its text */
    long seq;         /* number of its last event, -1: none yet */
    long pause_ms;    /* before the next try */
    int64_t cut_at;   /* since when handshakes are cut: wrong keys, or a box that is starting; -1: the keys fit */
    char keys[3][41]; /* in Z85: public, secret, and that of the box, in the order of ZMQ_CURVE_PUBLICKEY… */
};

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The value of `key` in the object that `json` begins with, or NULL. Looks at this object's own keys only. */
static const char *value(const char *json, const char *key) {
    size_t length = strlen(key);
    int depth = 0, is_key = 0;
    for (const char *p = json; *p; p++) {
        if (*p == '{' || *p == '[') depth++, is_key = *p == '{';
        else if (*p == '}' || *p == ']') { if (--depth == 0) return NULL; }
        else if (*p == ',') is_key = 1;
        else if (*p == ':') is_key = 0;
        else if (*p == '"') {
            const char *begin = ++p;
            while (*p && *p != '"') p += *p == '\\' && p[1] ? 2 : 1;
            if (!*p) return NULL;
            if (depth == 1 && is_key && (size_t)(p - begin) == length && !memcmp(begin, key, length) && p[1] == ':')
                return p + 2;
        }
    }
    return NULL;
}

static long number(const char *json, const char *key, long missing) {
    const char *v = value(json, key);
    return v && (*v == '-' || (*v >= '0' && *v <= '9')) ? strtol(v, NULL, 10) : missing;
}

static char *put_utf8(char *out, unsigned c) {
    if (c < 0x80) *out++ = (char)c;
    else if (c < 0x800) *out++ = (char)(0xC0 | c >> 6), *out++ = (char)(0x80 | (c & 63));
    else *out++ = (char)(0xE0 | c >> 12), *out++ = (char)(0x80 | (c >> 6 & 63)), *out++ = (char)(0x80 | (c & 63));
    return out;
}

/* A string value, unescaped, in memory of its own; "" when there is none. (The daemon writes UTF-8 as it is and
 * escapes control characters, quotes and backslashes only.) */
static char *string(const char *json, const char *key) {
    const char *v = value(json, key);
    char *text = malloc(v ? strlen(v) + 1 : 1), *out = text;
    if (!text) abort();
    if (v && *v == '"')
        for (v++; *v && *v != '"'; v++) {
            if (*v != '\\') { *out++ = *v; continue; }
            const char *known = "n\nt\tr\rb\bf\f", *at = strchr(known, *++v);
            if (*v == 'u') { unsigned c = 0; if (sscanf(v + 1, "%4x", &c) == 1) out = put_utf8(out, c), v += 4; }
            else *out++ = at ? at[1] : *v;
        }
    *out = 0;
    return text;
}

/* {"op":"generate",…} with the prompt escaped. */
static char *request_body(const char *id, const char *prompt) {
    char *body = malloc(6 * strlen(prompt) + 256), *out = body;
    if (!body) abort();
    out += sprintf(out, "{\"op\":\"generate\",\"id\":\"%s\",\"stream\":\"reply\",\"deadline_ms\":%d,", id, DEADLINE_MS);
    out += sprintf(out, "\"messages\":[{\"role\":\"user\",\"content\":\"");
    for (const unsigned char *p = (const unsigned char *)prompt; *p; p++)
        if (*p < 32 || *p == '"' || *p == '\\') out += sprintf(out, "\\u%04x", *p);
        else *out++ = (char)*p;
    strcpy(out, "\"}]}");
    return body;
}

static void print_from(struct stream *s, const char *text, size_t skip) {
    size_t length = strlen(text);
    if (length > skip) fwrite(text + skip, 1, length - skip, stdout), s->printed += length - skip;
    fflush(stdout);
}

static enum outcome failed(struct stream *s, const char *error) {
    char *code = string(error, "code"), *message = string(error, "message");
    int again = value(error, "retryable") && *value(error, "retryable") == 't';
    fprintf(stderr, "\n[%s: %s%s]\n", code, message, again ? "; trying again" : "");
    s->pause_ms = number(error, "retry_after_ms", PAUSE_MS);
    free(code), free(message);
    return again ? AGAIN : FAILED;
}

/* One message of the daemon. DONE and FAILED are final, AGAIN asks for another try, -1 for the next message. */
static int take(struct stream *s, const char *json) {
    if (value(json, "error")) return (int)failed(s, value(json, "error"));
    char *type = string(json, "type"), *text = string(json, "text"), *topic = string(json, "topic");
    char *why = string(json, "finish_reason");
    long seq = number(json, "seq", -1);
    int result = -1;
    if (*topic) { /* the ticket */
        if (*s->topic && strcmp(s->topic, topic)) fprintf(stderr, "\n[begins anew]\n");
        if (strcmp(s->topic, topic)) s->printed = 0, s->seq = -1;
        snprintf(s->topic, sizeof s->topic, "%s", topic);
    } else if (!strcmp(type, "snapshot")) {
        if (seq > s->seq) print_from(s, text, s->printed), s->seq = seq;
    } else if (*type && seq != s->seq + 1) {
        result = AGAIN; /* an event was lost: ask again, the snapshot has it */
    } else if (*type) {
        s->seq = seq;
        if (!strcmp(type, "token")) print_from(s, text, 0);
        int cut = !strcmp(why, "cancelled") || !strcmp(why, "deadline");
        if (!strcmp(type, "end")) print_from(s, text, s->printed), result = cut ? FAILED : DONE;
        if (result == FAILED) fprintf(stderr, "\n[cut off: %s]\n", why);
    }
    free(type), free(text), free(topic), free(why);
    return result;
}

static int read_key(const char *path, const char *format, char key[41], mode_t closed) { /* mode without `closed` */
    char line[256] = "";
    struct stat status = {0};
    FILE *file = fopen(path, "r");
    while (file && sscanf(line, format, key) != 1 && fgets(line, sizeof line, file)) {}
    if (file) fstat(fileno(file), &status), fclose(file);
    if (status.st_mode & closed) return fprintf(stderr, "%s: others can read this secret: chmod 600 it\n", path), 0;
    return strlen(key) == 40 || (fprintf(stderr, "%s: no such key\n", path), 0);
}
static void cancel(void *socket, const char *id) {
    char body[128];
    int length = snprintf(body, sizeof body, "{\"op\":\"cancel\",\"id\":\"%s\"}", id), linger = 1000;
    zmq_send(socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(socket, body, (size_t)length, ZMQ_DONTWAIT);
    zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof linger);
}

/* One try over a socket of its own. */
static enum outcome attempt(void *context, const char *endpoint, const char *body, struct stream *s, int64_t until) {
    void *socket = zmq_socket(context, ZMQ_DEALER), *monitor = zmq_socket(context, ZMQ_PAIR);
    int no_linger = 0, result = -1;
    char name[64];
    snprintf(name, sizeof name, "inproc://%p", socket);
    int refused = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL;
    zmq_socket_monitor(socket, name, refused | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH), zmq_connect(monitor, name);
    zmq_setsockopt(socket, ZMQ_LINGER, &no_linger, sizeof no_linger), s->pause_ms = PAUSE_MS;
    for (int n = 0; n < 3 && *s->keys[n]; n++) zmq_setsockopt(socket, ZMQ_CURVE_PUBLICKEY + n, s->keys[n], 41);
    if (zmq_connect(socket, endpoint)) { perror(endpoint); result = FAILED; }
    zmq_send(socket, "", 0, ZMQ_SNDMORE | ZMQ_DONTWAIT), zmq_send(socket, body, strlen(body), ZMQ_DONTWAIT);
    while (result < 0) {
        int64_t left = until - now_ms();
        zmq_pollitem_t items[] = {{socket, 0, ZMQ_POLLIN, 0}, {monitor, 0, ZMQ_POLLIN, 0}};
        int ready = left <= 0 ? 0 : zmq_poll(items, 2, left < SILENCE_MS ? left : SILENCE_MS);
        if (interrupted) cancel(socket, s->id);
        if (ready <= 0 || interrupted) { result = AGAIN; break; }
        if (items[1].revents) { /* refused, and libzmq does not try again by itself; 400: it would be in vain */
            uint16_t told[3] = {0}; /* the event, then its value in the order of this machine's bytes */
            zmq_recv(monitor, told, sizeof told, ZMQ_DONTWAIT);
            result = told[0] & refused || (told[1] != 400 && told[2] != 400) ? AGAIN : FAILED;
            if (result == FAILED) fprintf(stderr, "[%s does not know this key]\n", endpoint);
            if (told[0] & refused && !s->cut_at) s->cut_at = now_ms();
        }
        for (int more = items[0].revents; more;) { /* the last frame is the body */
            zmq_msg_t frame;
            zmq_msg_init(&frame);
            if (zmq_msg_recv(&frame, socket, 0) < 0) break;
            more = zmq_msg_more(&frame);
            char *json = strndup(zmq_msg_data(&frame), zmq_msg_size(&frame));
            if (!more) result = take(s, json), s->cut_at = -1;
            free(json);
            zmq_msg_close(&frame);
        }
    }
    if (result == AGAIN && s->cut_at > 0 && now_ms() - s->cut_at >= SILENCE_MS && !interrupted)
        fprintf(stderr, "[%s ends the handshake: wrong keys, or keys on one side only]\n", endpoint), result = FAILED;
    zmq_socket_monitor(socket, NULL, 0), zmq_close(monitor), zmq_close(socket);
    return (enum outcome)result;
}

int main(int argc, char **argv) {
    struct stream s = {.seq = -1};
    if (argc != 3 && argc != 5) return fprintf(stderr, "usage: %s ENDPOINT PROMPT [KEY SERVER_KEY]\n", argv[0]), 2;
    if (argc == 5 && !read_key(argv[3], " public-key = \"%40[^\"]", s.keys[0], 0)) return 2;
    if (argc == 5 && !read_key(argv[3], " secret-key = \"%40[^\"]", s.keys[1], 077)) return 2;
    if (argc == 5 && !read_key(argv[4], " public-key = \"%40[^\"]", s.keys[2], 0)) return 2;
    snprintf(s.id, sizeof s.id, "c-%ld-%lld", (long)getpid(), (long long)now_ms());
    char *body = request_body(s.id, argv[2]);
    void *context = zmq_ctx_new();
    struct sigaction interrupt = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &interrupt, NULL);
    int64_t until = now_ms() + DEADLINE_MS;
    enum outcome result = AGAIN;
    while (result == AGAIN && !interrupted && now_ms() < until) {
        result = attempt(context, argv[1], body, &s, until);
        for (; result == AGAIN && s.pause_ms > 0 && !interrupted && now_ms() < until; s.pause_ms -= 100) usleep(100000);
    }
    zmq_ctx_term(context), free(body);
    if (result == DONE) putchar('\n');
    return interrupted ? 130 : result == DONE ? 0 : result == FAILED ? 1 : 3;
}
