// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"

	"k8s.io/client-go/rest"
)

// Attach returns a handle on a control plane that another process runs: for measurements, in which the
// control plane's CPU time must not mix with the caller's. Schedulers and exporters are started through
// it as through the Cluster itself; Stop ends those and leaves the control plane alone.
//
// admin is the configuration of an administrator, such as clientcmd reads from Cluster.Kubeconfig.
// Config.APIServerArgs and the like belong to the other process; only Dir and Log of cfg are used.
func Attach(ctx context.Context, admin *rest.Config, cfg Config) (*Cluster, error) {
	if cfg.Controllers || cfg.KwokBinary != "" {
		return nil, errors.New("attach to a control plane: its controllers and kwok belong to the process that runs it")
	}
	dir, owned, err := cfg.prepare()
	if err != nil {
		return nil, err
	}
	c := &Cluster{dir: dir, owned: owned, log: cfg.log(), admin: rest.CopyConfig(admin), stopExporter: map[string]context.CancelFunc{}, simulated: map[string]*simulated{}}
	c.exporterCtx, c.cancelExporter = context.WithCancel(context.WithoutCancel(ctx))
	return c, nil
}
