// Counts words, as the services in other languages beside it do. Usage: go run service.go [URL of a door]
package main

import (
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/nats-io/nats.go"
)

func main() {
	url := nats.DefaultURL
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	closed := make(chan bool)
	client, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ClosedHandler(func(*nats.Conn) { close(closed) }))
	if err != nil {
		log.Fatal(err)
	}
	// A queue subscription is a member of the cluster "words": native programs ask it, too.
	client.QueueSubscribe("words", "counters", func(request *nats.Msg) {
		words := len(strings.Fields(string(request.Data)))
		if words == 0 { // a RemoteError for native callers
			client.PublishMsg(&nats.Msg{Subject: request.Reply, Header: nats.Header{
				"Nats-Service-Error": {"there are no words"}, "Nats-Service-Error-Code": {"400"}}})
			return
		}
		counted := fmt.Sprintf("%d words, counted in Go", words)
		client.Publish("words.counted", []byte(counted)) // for every subscriber of the topic, native ones too
		request.Respond([]byte(counted))
	})
	client.Flush()
	fmt.Println("serving")
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	<-stop
	client.Drain() // answers the requests that have arrived
	<-closed
}
