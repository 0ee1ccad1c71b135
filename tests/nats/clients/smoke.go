// Checks a server of NATS with nats.go; prints a line for each check that holds. Usage: go run smoke.go URL [URL of the second client]
package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	messages = 50_000
	patience = 5 * time.Second
)

func check(name string, holds bool) {
	if !holds {
		fmt.Fprintln(os.Stderr, name, "does not hold")
		os.Exit(1)
	}
	fmt.Println(name)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func connect(url string) *nats.Conn {
	client, err := nats.Connect(url)
	must(err)
	return client
}

func subscribe(client *nats.Conn, pattern string) *nats.Subscription {
	subscription, err := client.SubscribeSync(pattern)
	must(err)
	must(subscription.SetPendingLimits(-1, -1))
	must(client.Flush())
	return subscription
}

func next(subscription *nats.Subscription) *nats.Msg {
	message, err := subscription.NextMsg(patience)
	must(err)
	return message
}

func main() {
	one, other := connect(os.Args[1]), connect(os.Args[len(os.Args)-1])
	check("connect", one.HeadersSupported())

	wide, deep := subscribe(other, "smoke.*.b"), subscribe(other, "smoke.>")
	must(one.Publish("smoke.a.b", []byte("1")))
	must(one.Publish("smoke.c.b", []byte("2")))
	check("publish", string(next(wide).Data) == "1" && string(next(wide).Data) == "2")
	check("wildcards", next(deep).Subject == "smoke.a.b" && next(deep).Subject == "smoke.c.b")

	var shared int32
	for _, client := range []*nats.Conn{one, other} {
		_, err := client.QueueSubscribe("jobs.new", "workers", func(*nats.Msg) { atomic.AddInt32(&shared, 1) })
		must(err)
		must(client.Flush())
	}
	for number := 0; number < 100; number++ {
		must(one.Publish("jobs.new", nil))
	}
	must(one.Flush())
	must(other.Flush())
	time.Sleep(200 * time.Millisecond)
	check("queue", atomic.LoadInt32(&shared) == 100)

	_, err := other.QueueSubscribe("upper", "upper", func(message *nats.Msg) {
		answer := nats.NewMsg(message.Reply)
		answer.Data = bytes.ToUpper(message.Data)
		answer.Header.Set("language", message.Header.Get("language"))
		must(message.RespondMsg(answer))
	})
	must(err)
	must(other.Flush())
	asked := nats.NewMsg("upper")
	asked.Data = []byte("hello")
	asked.Header.Set("language", "go")
	reply, err := one.RequestMsg(asked, patience)
	must(err)
	check("request", string(reply.Data) == "HELLO")
	check("headers", reply.Header.Get("language") == "go")

	_, err = one.Request("nobody.answers", nil, patience)
	check("no responders", err == nats.ErrNoResponders)

	many := subscribe(other, "many")
	for number := 0; number < messages; number++ {
		must(one.Publish("many", []byte(strconv.Itoa(number))))
	}
	must(one.Flush())
	inOrder := true
	for number := 0; number < messages; number++ {
		inOrder = inOrder && string(next(many).Data) == strconv.Itoa(number)
	}
	check("many", inOrder)

	var drained int32
	_, err = other.Subscribe("last", func(*nats.Msg) { atomic.AddInt32(&drained, 1) })
	must(err)
	must(other.Flush())
	for number := 0; number < 10; number++ {
		must(other.Publish("last", nil))
	}
	closed := make(chan struct{})
	other.SetClosedHandler(func(*nats.Conn) { close(closed) })
	must(other.Drain())
	<-closed
	check("drain", atomic.LoadInt32(&drained) == 10)
	one.Close()
}
