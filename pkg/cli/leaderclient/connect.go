// SPDX-License-Identifier: Apache-2.0

package leaderclient

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/nvtopo/nvtopo/pkg/placement/diagnosis"
)

const (
	// tokenSeconds is how long the scheduler's token is valid: the API server's minimum.
	tokenSeconds = 600
	// connectTimeout bounds each step of a connection.
	connectTimeout = 15 * time.Second
)

// Connection is a client of the leader, and ends with Close.
type Connection struct {
	Client *http.Client
	URL    string // https://host:port
	Close  func()
}

// Connect makes a client of the leader, whose requests take timeout at most. config is of the API server.
func (l *Leader) Connect(ctx context.Context, kube kubernetes.Interface, config *rest.Config, timeout time.Duration) (*Connection, error) {
	token, err := l.token(ctx, kube)
	if err != nil {
		return nil, err
	}
	dial, end := l.dial, func() {}
	if l.InPod {
		t, err := l.forward(ctx, config)
		if err != nil {
			return nil, err
		}
		dial, end = t.dial, t.close
	}
	plain := &http.Transport{
		DialContext: dial, TLSClientConfig: l.only(), TLSHandshakeTimeout: connectTimeout,
	}
	client := &http.Client{
		Transport: transport.NewUserAgentRoundTripper(config.UserAgent, transport.NewBearerAuthRoundTripper(token, plain)), Timeout: timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the token is sent to no other server
	}
	return &Connection{Client: client, URL: "https://" + l.Address, Close: func() {
		plain.CloseIdleConnections()
		end()
	}}, nil
}

// dial connects to a scheduler that is a process on some host.
func (l *Leader) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("scheduler %s is no pod of %s, and published %s, which is not this host: name it with --scheduler if it is right", l.Process, l.Namespace, address)
	}
	conn, err := (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("%w; it is no pod of %s, and listens at that address of its host: ask there, or name another address with --scheduler", err, l.Namespace)
	}
	return conn, nil
}

// token has the API server issue a token that is valid for the scheduler's debug endpoint, and for nothing
// else.
func (l *Leader) token(ctx context.Context, kube kubernetes.Interface) (string, error) {
	made, err := kube.CoreV1().ServiceAccounts(l.Namespace).CreateToken(ctx, Account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenSeconds))},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", missing(refused(err, "token of ServiceAccount", l.Namespace, Account))
	}
	return made.Status.Token, nil
}

// only trusts the one certificate that the scheduler published. A server with another one gets no request.
func (l *Leader) only() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		// Neither names nor authorities are checked, but the certificate itself.
		InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			shown := ""
			if len(s.PeerCertificates) > 0 {
				sum := sha256.Sum256(s.PeerCertificates[0].Raw)
				shown = hex.EncodeToString(sum[:])
			}
			if shown != l.CertificateSHA256 {
				return fmt.Errorf("what answers at %s shows a certificate with SHA-256 %s, and the scheduler published %s in ConfigMap %s/%s: nothing was sent to it; if the scheduler has just started, ask again in 15 seconds", l.Address, shown, l.CertificateSHA256, l.Namespace, diagnosis.ProfilesName)
			}
			return nil
		},
	}
}
