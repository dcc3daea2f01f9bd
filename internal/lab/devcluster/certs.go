// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// certLife is how long the cluster's certificates are valid. A development
// cluster is short-lived; a year keeps a forgotten one usable.
const certLife = 365 * 24 * time.Hour

// authority is a certificate authority that lives as long as its cluster.
type authority struct {
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	pem    []byte
	now    time.Time
	serial int64
}

func newAuthority(now time.Time) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a CA key: %w", err)
	}
	a := &authority{key: key, now: now}
	// Clocks of one machine may still step back.
	if a.cert, err = cert.NewSelfSignedCACert(cert.Config{CommonName: "nvtopo-devcluster-ca", NotBefore: now.Add(-time.Hour)}, key); err != nil {
		return nil, fmt.Errorf("sign the CA certificate: %w", err)
	}
	if a.pem, err = cert.EncodeCertificates(a.cert); err != nil {
		return nil, fmt.Errorf("encode the CA certificate: %w", err)
	}
	return a, nil
}

// issue returns a certificate and its key in PEM: a server's if ips are given, else a client's.
func (a *authority) issue(subject pkix.Name, names []string, ips []net.IP) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	usage := x509.ExtKeyUsageClientAuth
	if len(names)+len(ips) > 0 {
		usage = x509.ExtKeyUsageServerAuth
	}
	a.serial++
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(a.serial),
		Subject:      subject,
		DNSNames:     names,
		IPAddresses:  ips,
		NotBefore:    a.cert.NotBefore,
		NotAfter:     a.now.Add(certLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{usage},
	}, a.cert, key.Public(), a.key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the certificate of %s: %w", subject.CommonName, err)
	}
	keyPEM, err = keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the key of %s: %w", subject.CommonName, err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: der}), keyPEM, nil
}

// credentials holds the files and keys that the API server and its admin need.
type credentials struct {
	caFile, certFile, keyFile, serviceAccountKeyFile string
	// proxyCAFile signs no certificate: it exists because the server logs complaints forever if
	// authentication by request header is only partly configured.
	proxyCAFile             string
	ca, adminCert, adminKey []byte // PEM
}

// writeCredentials creates the credentials and writes the files under dir.
func writeCredentials(dir string, now time.Time) (*credentials, error) {
	pki := filepath.Join(dir, "pki")
	if err := os.MkdirAll(pki, 0o700); err != nil {
		return nil, fmt.Errorf("make the certificates' folder: %w", err)
	}
	a, err := newAuthority(now)
	if err != nil {
		return nil, err
	}
	serverCert, serverKey, err := a.issue(pkix.Name{CommonName: "kube-apiserver"},
		[]string{"localhost", "kubernetes.default.svc"}, []net.IP{net.IPv4(127, 0, 0, 1), firstServiceIP()})
	if err != nil {
		return nil, err
	}
	c := &credentials{ca: a.pem}
	// system:masters passes every authorisation check (bootstrap policy of kube-apiserver).
	c.adminCert, c.adminKey, err = a.issue(pkix.Name{CommonName: "devcluster-admin", Organization: []string{"system:masters"}}, nil, nil)
	if err != nil {
		return nil, err
	}
	proxyCA, err := newAuthority(now)
	if err != nil {
		return nil, err
	}
	saPEM, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return nil, fmt.Errorf("make the service account key: %w", err)
	}
	for _, f := range []struct {
		name string
		to   *string
		data []byte
	}{
		{"ca.crt", &c.caFile, a.pem},
		{"front-proxy-ca.crt", &c.proxyCAFile, proxyCA.pem},
		{"apiserver.crt", &c.certFile, serverCert},
		{"apiserver.key", &c.keyFile, serverKey},
		{"sa.key", &c.serviceAccountKeyFile, saPEM},
	} {
		*f.to = filepath.Join(pki, f.name)
		if err := os.WriteFile(*f.to, f.data, 0o600); err != nil {
			return nil, fmt.Errorf("write a certificate: %w", err)
		}
	}
	return c, nil
}
