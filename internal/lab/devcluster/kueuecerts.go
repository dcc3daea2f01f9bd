// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	// kueueCA is both the common and the DNS name that Kueue's rotator of
	// certificates expects of the authority. It makes a new one otherwise, and
	// waits for a kubelet to bring it the files.
	kueueCA = "kueue-ca"
	// kueueService is the name in the server's certificate that the rotator checks.
	kueueService = "kueue-webhook-service." + kueueNamespace + ".svc"
	rsaBits      = 2048
)

// kueueCertificates makes the authority and the certificate of Kueue's webhooks,
// as PEM by the names that they have in its Secret and its folder.
func kueueCertificates(now time.Time) (map[string][]byte, error) {
	// The rotator reads the authority's key as PKCS#1, so it is RSA.
	caKey, err := rsa.GenerateKey(rand.Reader, rsaBits)
	if err != nil {
		return nil, fmt.Errorf("make the key of Kueue's CA: %w", err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make Kueue's key: %w", err)
	}
	// Clocks of one machine may still step back.
	from, until := now.Add(-time.Hour), now.Add(certLife)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: kueueCA, Organization: []string{"kueue"}}, DNSNames: []string{kueueCA},
		NotBefore: from, NotAfter: until, BasicConstraintsValid: true, IsCA: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("sign Kueue's CA: %w", err)
	}
	serverDER, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: kueueService},
		DNSNames: []string{kueueService, "localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: from, NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, ca, key.Public(), caKey)
	if err != nil {
		return nil, fmt.Errorf("sign Kueue's certificate: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode Kueue's key: %w", err)
	}
	return map[string][]byte{
		"ca.crt":  pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: caDER}),
		"ca.key":  pem.EncodeToMemory(&pem.Block{Type: keyutil.RSAPrivateKeyBlockType, Bytes: x509.MarshalPKCS1PrivateKey(caKey)}),
		"tls.crt": pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: serverDER}),
		"tls.key": keyPEM,
	}, nil
}
