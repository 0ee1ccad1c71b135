/* Checks a server of NATS with nats.c; prints a line for each check that holds. Usage: smoke URL [URL of the second client] */
#include <ctype.h>
#include <nats/nats.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGES = 50000, PATIENCE_MS = 5000 };

static void check(const char *name, bool holds) {
    if (!holds) {
        fprintf(stderr, "%s does not hold\n", name);
        exit(1);
    }
    puts(name);
}

static void must(natsStatus status) {
    if (status != NATS_OK) {
        fprintf(stderr, "%s\n", natsStatus_GetText(status));
        exit(1);
    }
}

static void next(natsSubscription *subscription, char *data, const char *subject) {
    natsMsg *message = NULL;
    must(natsSubscription_NextMsg(&message, subscription, PATIENCE_MS));
    bool holds = strlen(data) == (size_t)natsMsg_GetDataLength(message) &&
                 !memcmp(natsMsg_GetData(message), data, strlen(data)) && !strcmp(natsMsg_GetSubject(message), subject);
    natsMsg_Destroy(message);
    if (!holds)
        check(data, false);
}

static void count(natsConnection *client, natsSubscription *subscription, natsMsg *message, void *closure) {
    (void)client, (void)subscription;
    __atomic_add_fetch((int *)closure, 1, __ATOMIC_SEQ_CST);
    natsMsg_Destroy(message);
}

static void answer(natsConnection *client, natsSubscription *subscription, natsMsg *message, void *closure) {
    (void)subscription, (void)closure;
    int length = natsMsg_GetDataLength(message);
    char *text = strndup(natsMsg_GetData(message), (size_t)length);
    for (char *at = text; *at; at++)
        *at = (char)toupper(*at);
    natsMsg *reply = NULL;
    const char *language = "none";
    natsMsgHeader_Get(message, "language", &language);
    must(natsMsg_Create(&reply, natsMsg_GetReply(message), NULL, text, length));
    must(natsMsgHeader_Set(reply, "language", language));
    must(natsConnection_PublishMsg(client, reply));
    natsMsg_Destroy(reply);
    natsMsg_Destroy(message);
    free(text);
}

int main(int count_of_arguments, char **arguments) {
    natsConnection *one = NULL, *other = NULL;
    must(natsConnection_ConnectTo(&one, arguments[1]));
    must(natsConnection_ConnectTo(&other, arguments[count_of_arguments - 1]));
    check("connect", natsConnection_HasHeaderSupport(one) == NATS_OK);

    natsSubscription *wide = NULL, *deep = NULL;
    must(natsConnection_SubscribeSync(&wide, other, "smoke.*.b"));
    must(natsConnection_SubscribeSync(&deep, other, "smoke.>"));
    must(natsConnection_Flush(other));
    must(natsConnection_PublishString(one, "smoke.a.b", "1"));
    must(natsConnection_PublishString(one, "smoke.c.b", "2"));
    next(wide, "1", "smoke.a.b"), next(wide, "2", "smoke.c.b");
    check("publish", true);
    next(deep, "1", "smoke.a.b"), next(deep, "2", "smoke.c.b");
    check("wildcards", true);

    int shared = 0;
    natsConnection *clients[] = {one, other};
    for (int number = 0; number < 2; number++) {
        natsSubscription *queue = NULL;
        must(natsConnection_QueueSubscribe(&queue, clients[number], "jobs.new", "workers", count, &shared));
        must(natsConnection_Flush(clients[number]));
    }
    for (int number = 0; number < 100; number++)
        must(natsConnection_PublishString(one, "jobs.new", ""));
    must(natsConnection_Flush(one));
    must(natsConnection_Flush(other));
    nats_Sleep(200);
    check("queue", __atomic_load_n(&shared, __ATOMIC_SEQ_CST) == 100);

    natsSubscription *upper = NULL;
    must(natsConnection_QueueSubscribe(&upper, other, "upper", "upper", answer, NULL));
    must(natsConnection_Flush(other));
    natsMsg *asked = NULL, *reply = NULL;
    must(natsMsg_Create(&asked, "upper", NULL, "hello", 5));
    must(natsMsgHeader_Set(asked, "language", "c"));
    must(natsConnection_RequestMsg(&reply, one, asked, PATIENCE_MS));
    check("request", natsMsg_GetDataLength(reply) == 5 && !memcmp(natsMsg_GetData(reply), "HELLO", 5));
    const char *language = "none";
    natsMsgHeader_Get(reply, "language", &language);
    check("headers", !strcmp(language, "c"));
    natsMsg_Destroy(asked);
    natsMsg_Destroy(reply);

    check("no responders",
          natsConnection_RequestString(&reply, one, "nobody.answers", "", PATIENCE_MS) == NATS_NO_RESPONDERS);

    natsSubscription *many = NULL;
    must(natsConnection_SubscribeSync(&many, other, "many"));
    must(natsSubscription_SetPendingLimits(many, -1, -1));
    must(natsConnection_Flush(other));
    char text[16];
    for (int number = 0; number < MESSAGES; number++) {
        snprintf(text, sizeof text, "%d", number);
        must(natsConnection_PublishString(one, "many", text));
    }
    must(natsConnection_Flush(one));
    for (int number = 0; number < MESSAGES; number++) {
        snprintf(text, sizeof text, "%d", number);
        next(many, text, "many");
    }
    check("many", true);

    int drained = 0;
    natsSubscription *last = NULL;
    must(natsConnection_Subscribe(&last, other, "last", count, &drained));
    must(natsConnection_Flush(other));
    for (int number = 0; number < 10; number++)
        must(natsConnection_PublishString(other, "last", ""));
    must(natsSubscription_Drain(last));
    must(natsSubscription_WaitForDrainCompletion(last, PATIENCE_MS));
    check("drain", __atomic_load_n(&drained, __ATOMIC_SEQ_CST) == 10);
    natsConnection_Destroy(one);
    natsConnection_Destroy(other);
    nats_Close();
    return 0;
}
