/* Counts words, as the services in other languages beside it do. Usage: service [URL of a door] */
#include <nats/nats.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void count_words(natsConnection *client, natsSubscription *queue, natsMsg *request, void *closure) {
    (void)queue, (void)closure;
    char *text = strndup(natsMsg_GetData(request), (size_t)natsMsg_GetDataLength(request)), counted[64], *rest = NULL;
    int words = 0;
    for (char *word = strtok_r(text, " \t\r\n", &rest); word != NULL; word = strtok_r(NULL, " \t\r\n", &rest))
        words++;
    natsMsg *failure = NULL;
    if (words > 0) {
        snprintf(counted, sizeof(counted), "%d words, counted in C", words);
        natsConnection_PublishString(client, "words.counted", counted); /* for every subscriber of the topic, native ones too */
        natsConnection_PublishString(client, natsMsg_GetReply(request), counted);
    } else if (natsMsg_Create(&failure, natsMsg_GetReply(request), NULL, NULL, 0) == NATS_OK) {
        natsMsgHeader_Set(failure, "Nats-Service-Error", "there are no words"); /* a RemoteError for native callers */
        natsMsgHeader_Set(failure, "Nats-Service-Error-Code", "400");
        natsConnection_PublishMsg(client, failure);
    }
    natsMsg_Destroy(failure);
    natsMsg_Destroy(request);
    free(text);
}

int main(int count, char **arguments) {
    natsConnection *client = NULL;
    natsSubscription *queue = NULL;
    sigset_t stop;
    int number;
    sigemptyset(&stop), sigaddset(&stop, SIGINT), sigaddset(&stop, SIGTERM);
    sigprocmask(SIG_BLOCK, &stop, NULL); /* for the threads of the client, too: this one waits for them */
    natsStatus status = natsConnection_ConnectTo(&client, count > 1 ? arguments[1] : NATS_DEFAULT_URL);
    if (status == NATS_OK) /* a queue subscription is a member of the cluster "words": native programs ask it, too */
        status = natsConnection_QueueSubscribe(&queue, client, "words", "counters", count_words, NULL);
    if (status == NATS_OK)
        status = natsConnection_Flush(client);
    if (status == NATS_OK) {
        puts("serving"), fflush(stdout);
        sigwait(&stop, &number);
        natsSubscription_Drain(queue); /* answers the requests that have arrived */
        natsSubscription_WaitForDrainCompletion(queue, 5000);
    } else
        fprintf(stderr, "%s\n", natsStatus_GetText(status));
    natsSubscription_Destroy(queue);
    natsConnection_Destroy(client);
    nats_Close();
    return status != NATS_OK;
}
