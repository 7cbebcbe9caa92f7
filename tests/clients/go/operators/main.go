// Operators are programs of the sorts that people write with controller-runtime, each a custom resource and what has to be
// made and watched for it. They know nothing of Hanse. Where the server is they find out as all do: by KUBECONFIG, or
// by what a pod is given.
//
//	operators NAME
package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

var group = schema.GroupVersion{Group: "operators.hanse.test", Version: "v1"}

// operator is one of them.
type operator struct {
	// kind of its custom resource.
	kind string
	// owns is what it makes and hears of by owner references.
	owns []client.Object
	// hears is what else it has to hear of.
	hears func(*builder.Builder, *kit)
	// keep brings about what the resource wants.
	keep func(context.Context, *kit, *unstructured.Unstructured) (outcome, error)
	// finish undoes what owner references do not; it says whether that is done. With it comes a finalizer.
	finish func(context.Context, *kit, *unstructured.Unstructured) (bool, error)
	// begin runs before anything else.
	begin func(context.Context, *kit) error
	// elects: only one of several processes works.
	elects bool
}

var operators = map[string]operator{
	"agent": agent, "blue-green": blueGreen, "bucket": bucket, "canary": canary, "converter": converter, "database": database,
	"guard": guard, "issuer": issuer, "memcached": memcached, "mirror": mirror, "pod-set": podSet, "preview": preview,
	"replicator": replicator, "singleton": singleton, "tenant": tenant, "ticker": ticker, "website": website, "workers": workers,
	"workflow": workflow,
}

func main() {
	if len(os.Args) != 2 || operators[os.Args[1]].keep == nil {
		var names []string
		for name := range operators {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "usage: operators NAME; there are: %s\n", strings.Join(names, " "))
		os.Exit(2)
	}
	logger := funcr.New(func(prefix, args string) { fmt.Fprintln(os.Stderr, prefix, args) }, funcr.Options{})
	ctrl.SetLogger(logger)
	klog.SetLogger(logger)
	if err := run(ctrl.SetupSignalHandler(), os.Args[1], operators[os.Args[1]]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, name string, operator operator) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		LeaderElection: operator.elects, LeaderElectionID: name + "." + group.Group, LeaderElectionNamespace: os.Getenv("POD_NAMESPACE"),
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(8 * time.Second), RenewDeadline: ptr.To(6 * time.Second), RetryPeriod: ptr.To(time.Second),
		// As most do it: secrets of all the world are not kept in memory, and what is kept in memory may be old.
		Client: client.Options{Cache: &client.CacheOptions{Unstructured: true}},
	})
	if err != nil {
		return err
	}
	kit := newKit(manager, name)
	if operator.begin != nil {
		if err := operator.begin(ctx, kit); err != nil {
			return err
		}
	}
	resource := newResource(operator.kind)
	work := ctrl.NewControllerManagedBy(manager).Named(name).For(resource)
	for _, owned := range operator.owns {
		work = work.Owns(owned)
	}
	if operator.hears != nil {
		operator.hears(work, kit)
	}
	if err := work.Complete(&reconciler{operator, kit}); err != nil {
		return err
	}
	return manager.Start(ctx)
}

func newResource(kind string) *unstructured.Unstructured {
	resource := &unstructured.Unstructured{}
	resource.SetGroupVersionKind(group.WithKind(kind))
	return resource
}
