// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Free ports are those between firstPort and lastPort. Linux gives programs that do not name one a port
// from 32768 on (ip_local_port_range), and Kubernetes gives Services those from 30000 on: such a port
// stays free until its intended program listens.
const (
	firstPort = 20000
	lastPort  = 29999
)

// FreePort returns a loopback port that was free a moment ago, and that only another call of FreePort may
// return.
func FreePort() (int, error) {
	var last error
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			err = l.Close()
		}
		if err == nil {
			return port, nil
		}
		last = err
	}
	return 0, fmt.Errorf("find a free port: %w", last)
}
