// A service or a caller of the subject "pool", for tests. Usage: pool URL serve | pool URL ask NAME
// A service prints each request before it answers with "go". A caller asks in lanes until standard input ends, and prints each
// request with its outcome: the reply, the code of an error, or "silent".
package main

import (
	"bufio"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	lanes    = 4
	patience = 10 * time.Second
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func say(words ...string) {
	line := ""
	for number, word := range words {
		if number > 0 {
			line += " "
		}
		line += word
	}
	os.Stdout.WriteString(line + "\n")
}

func serve(client *nats.Conn) {
	_, err := client.QueueSubscribe("pool", "go", func(request *nats.Msg) {
		say(string(request.Data))
		must(request.Respond([]byte("go")))
	})
	must(err)
	must(client.Flush())
	say("serving")
	select {}
}

func outcome(client *nats.Conn, payload string) string {
	reply, err := client.Request("pool", []byte(payload), patience)
	switch {
	case err == nats.ErrNoResponders:
		return "503"
	case err != nil:
		return "silent"
	case reply.Header.Get("Nats-Service-Error-Code") != "":
		return reply.Header.Get("Nats-Service-Error-Code")
	}
	return string(reply.Data)
}

func ask(client *nats.Conn, name string) {
	var over atomic.Bool
	var running sync.WaitGroup
	for lane := 0; lane < lanes; lane++ {
		running.Add(1)
		go func(lane int) {
			defer running.Done()
			for number := 0; !over.Load(); number++ {
				payload := fmt.Sprintf("%s.%d.%d", name, lane, number)
				say(payload, outcome(client, payload))
			}
		}(lane)
	}
	for reader := bufio.NewScanner(os.Stdin); reader.Scan(); {
	}
	over.Store(true)
	running.Wait()
}

func main() {
	client, err := nats.Connect(os.Args[1])
	must(err)
	if os.Args[2] == "serve" {
		serve(client)
	} else {
		ask(client, os.Args[3])
	}
}
