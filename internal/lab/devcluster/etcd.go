// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// Sockets of etcd inside the cluster's folder. Sockets rather than ports: no
// other process can take one between choosing and binding it.
const (
	etcdClientSocket = "etcd/client.sock"
	etcdPeerSocket   = "etcd/peer.sock"
)

// startEtcd starts etcd in this process and waits until it serves. It does not
// sync its files: nothing in a development cluster outlives it.
func startEtcd(ctx context.Context, dir string, log io.Writer) (*embed.Etcd, string, error) {
	data := filepath.Join(dir, "etcd")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, "", fmt.Errorf("make etcd's folder: %w", err)
	}
	client := url.URL{Scheme: "unix", Path: filepath.Join(dir, etcdClientSocket)}
	peer := url.URL{Scheme: "unix", Path: filepath.Join(dir, etcdPeerSocket)}

	cfg := embed.NewConfig()
	cfg.Dir = filepath.Join(data, "data")
	cfg.UnsafeNoFsync = true
	cfg.ListenClientUrls, cfg.ListenPeerUrls = []url.URL{client}, []url.URL{peer}
	// etcd insists on host:port for the addresses it would tell others. There
	// are no others, so nothing listens there (port 1 is tcpmux, never in use).
	nowhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:1"}}
	cfg.AdvertiseClientUrls, cfg.AdvertisePeerUrls = nowhere, nowhere
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	core := zapcore.NewCore(zapcore.NewConsoleEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(log), zapcore.ErrorLevel)
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.New(core).Named("etcd"))

	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return nil, "", fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-e.Server.ReadyNotify():
		return e, client.String(), nil
	case err := <-e.Err():
		e.Close()
		return nil, "", fmt.Errorf("start etcd: %w", err)
	case <-ctx.Done():
		e.Close()
		return nil, "", fmt.Errorf("wait for etcd: %w", ctx.Err())
	}
}
