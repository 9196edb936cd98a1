// An S3 server: versitygw over a folder, with what its own command has by default and no other backend. That command
// also compiles Azure's and its own test suite.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	listen := flag.String("port", "", "host:port to listen on")
	access := flag.String("access", "", "access key")
	secret := flag.String("secret", "", "secret key")
	folder := flag.String("folder", "", "existing folder; a bucket is a folder in it")
	flag.Parse()
	if err := (meta.XattrMeta{}).Test(*folder); err != nil {
		log.Fatalf("extended attributes in %s: %v", *folder, err)
	}
	store, err := posix.New(*folder, meta.XattrMeta{}, posix.PosixOpts{CopyObjectThreshold: 5 << 30})
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(embedgw.RunVersityGW(context.Background(), store, &embedgw.Config{
		RootUserAccess:    *access,
		RootUserSecret:    *secret,
		Ports:             []string{*listen},
		MaxConnections:    250000,
		MaxRequests:       100000,
		MultipartMaxParts: 10000,
		Quiet:             true,
		KeepAlive:         true,
	}))
}
