// Command churn follows the config maps of a namespace with an informer of client-go, and tells on stdout of all that
// reaches it, one line each, so that somebody else can compare it with what was written:
//
//	init                       a list, or a watch that begins with one, was asked for
//	list                       … and it was a list
//	listed NAME VERSION        is there already
//	initialized VERSION        that was all of it; by the bookmark, or by the end of the list
//	opened VERSION             a watch that goes on from there
//	changed TYPE NAME VERSION  an event
//	bookmark VERSION
//	expired                    410
//	handled TYPE NAME VERSION  what a handler was told
//	cache NAME VERSION …       what the cache holds, when a line came on stdin, and after it:
//	end
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, namespace string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	told := &teller{out: bufio.NewWriter(os.Stdout)}
	follower := &follower{client: client, namespace: namespace, told: told}
	listWatch := cache.ToListWatcherWithWatchListSemantics(
		&cache.ListWatch{ListWithContextFunc: follower.list, WatchFuncWithContext: follower.watch}, client)
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: listWatch, ObjectType: &corev1.ConfigMap{}, Handler: told})
	go informer.RunWithContext(ctx)

	asked := bufio.NewScanner(os.Stdin)
	for asked.Scan() {
		told.cache(store)
	}
	return asked.Err()
}

// follower asks the server as the generated client does, and tells of what it answers.
type follower struct {
	client    kubernetes.Interface
	namespace string
	told      *teller
}

func (f *follower) list(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	f.told.line("init")
	f.told.line("list")
	list, err := f.client.CoreV1().ConfigMaps(f.namespace).List(ctx, options)
	if err != nil {
		f.told.failure(err)
		return nil, err
	}
	for i := range list.Items {
		f.told.line("listed %s %s", list.Items[i].Name, list.Items[i].ResourceVersion)
	}
	if list.Continue == "" {
		f.told.line("initialized %s", list.ResourceVersion)
	}
	return list, nil
}

func (f *follower) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	initial := options.SendInitialEvents != nil && *options.SendInitialEvents
	watcher, err := f.client.CoreV1().ConfigMaps(f.namespace).Watch(ctx, options)
	if err != nil {
		f.told.failure(err)
		return nil, err
	}
	if initial {
		f.told.line("init")
	} else {
		f.told.line("opened %s", options.ResourceVersion)
	}
	return watch.Filter(watcher, func(event watch.Event) (watch.Event, bool) {
		switch object := event.Object.(type) {
		case *corev1.ConfigMap:
			switch {
			case event.Type == watch.Bookmark && object.Annotations[metav1.InitialEventsAnnotationKey] == "true":
				f.told.line("initialized %s", object.ResourceVersion)
				initial = false
			case event.Type == watch.Bookmark:
				f.told.line("bookmark %s", object.ResourceVersion)
			case initial:
				f.told.line("listed %s %s", object.Name, object.ResourceVersion)
			default:
				f.told.line("changed %s %s %s", event.Type, object.Name, object.ResourceVersion)
			}
		case *metav1.Status:
			f.told.failure(apierrors.FromObject(object))
		}
		return event, true
	}), nil
}

// teller writes whole lines.
type teller struct {
	lock sync.Mutex
	out  *bufio.Writer
}

func (t *teller) line(format string, values ...any) {
	t.lock.Lock()
	defer t.lock.Unlock()
	fmt.Fprintf(t.out, format+"\n", values...)
	t.out.Flush()
}

func (t *teller) failure(err error) {
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		t.line("expired")
	}
}

func (t *teller) cache(store cache.Store) {
	t.lock.Lock()
	defer t.lock.Unlock()
	for _, object := range store.List() {
		held := object.(*corev1.ConfigMap)
		fmt.Fprintf(t.out, "cache %s %s\n", held.Name, held.ResourceVersion)
	}
	fmt.Fprintln(t.out, "end")
	t.out.Flush()
}

func (t *teller) handled(kind string, object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		// Of what went unseen the last known state is told.
		object = gone.Obj
	}
	if seen, ok := object.(*corev1.ConfigMap); ok {
		t.line("handled %s %s %s", kind, seen.Name, seen.ResourceVersion)
	}
}

func (t *teller) OnAdd(object any, _ bool) { t.handled("ADDED", object) }

func (t *teller) OnUpdate(before, after any) {
	// What a new list brought unchanged is no change.
	if before.(*corev1.ConfigMap).ResourceVersion != after.(*corev1.ConfigMap).ResourceVersion {
		t.handled("MODIFIED", after)
	}
}

func (t *teller) OnDelete(object any) { t.handled("DELETED", object) }
