// Crew is a controller-runtime operator whose custom resource needs things that run: pods that the operator makes itself,
// a StatefulSet with its Service, and a Job. It knows nothing of Hanse.
//
//	crew         runs it against the server that KUBECONFIG names, and checks what comes of it; pods must run there
//	crew serve   runs it until it is stopped, in a pod, with what the pod is given
package main

import (
	"context"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"hanse.test/clients/check"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		serve()
		return
	}
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", check.Kubeconfig())
	must(err)
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	checks(config)
}

// serve is what an operator's own main does: in its namespace, with the account of its pod.
func serve() {
	logger := funcr.New(func(prefix, args string) { println(prefix, args) }, funcr.Options{})
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	config, err := rest.InClusterConfig()
	must(err)
	namespace, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
	must(err)
	// Where the election takes place it finds out by itself.
	manager, err := newManager(config, string(namespace), "")
	must(err)
	must(manager.Start(ctrl.SetupSignalHandler()))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme, addCrews} {
		must(add(scheme))
	}
	return scheme
}

func newManager(config *rest.Config, namespace, election string) (ctrl.Manager, error) {
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  newScheme(),
		Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		LeaderElection: true, LeaderElectionID: "crew-operator", LeaderElectionNamespace: election,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(8 * time.Second), RenewDeadline: ptr.To(6 * time.Second), RetryPeriod: ptr.To(500 * time.Millisecond),
		Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
	})
	if err != nil {
		return nil, err
	}
	return manager, (&reconciler{Client: manager.GetClient()}).install(manager)
}

// running is a manager in the background.
type running struct {
	ctrl.Manager
	stop  context.CancelFunc
	ended chan error
}

func start(t *check.T, config *rest.Config, namespace string) *running {
	manager, err := newManager(config, namespace, namespace)
	t.Must(err, "make a manager")
	ctx, stop := context.WithCancel(context.Background())
	started := &running{Manager: manager, stop: stop, ended: make(chan error, 1)}
	go func() { started.ended <- manager.Start(ctx) }()
	return started
}
