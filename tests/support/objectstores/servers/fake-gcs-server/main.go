// A server of Google Cloud Storage's JSON API that holds its objects in memory: fake-gcs-server, as its own command
// starts it, without the gRPC API.
package main

import (
	"flag"
	"io"
	"log"
	"net"
	"net/http"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

func main() {
	listen := flag.String("listen", "", "host:port to listen on")
	external := flag.String("external-url", "", "where clients reach it, as uploads are told")
	flag.Parse()
	// Its own listener is one of httptest, which is for tests in the same process.
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		Scheme: "http", ExternalURL: *external, BucketsLocation: "US-CENTRAL1", NoListener: true, Writer: io.Discard,
	})
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, server.HTTPHandler()))
}
