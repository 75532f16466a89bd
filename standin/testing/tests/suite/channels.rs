//! Channels of tensors between host and device.

use crate::{run, success};

#[test]
fn tensors_come_out_of_a_channel_as_they_went_in() {
    let source = r#"
        #include <acl/acl_tdt.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <string.h>

        enum { QUEUE_EMPTY = 207013, QUEUE_FULL = 207014, FLOAT = 0 };

        static void *receive_for_ever(void *channel) {
            acltdtDataset *dataset = acltdtCreateDataset();
            long result = acltdtReceiveTensor(channel, dataset, -1);
            acltdtDestroyDataset(dataset);
            return (void *)result;
        }

        int main(void) {
            acltdtChannelHandle *channel = acltdtCreateChannelWithCapacity(0, "prints", 1);
            acltdtDataset *received = acltdtCreateDataset();
            printf("empty %d\n", acltdtReceiveTensor(channel, received, 1) == QUEUE_EMPTY);

            float numbers[6] = {1, 2, 3, 4, 5, 6};
            int64_t shape[2] = {2, 3}, dimensions[2] = {0, 0};
            acltdtDataset *sent = acltdtCreateDataset();
            acltdtDataItem *item = acltdtCreateDataItem(1, shape, 2, FLOAT, numbers, sizeof numbers);
            acltdtAddDataItem(sent, item);
            size_t waiting = 0;
            printf("sent %d\n", acltdtSendTensor(channel, sent, 1));
            printf("full %d\n", acltdtSendTensor(channel, sent, 1) == QUEUE_FULL);
            acltdtQueryChannelSize(channel, &waiting);
            printf("waiting %zu\n", waiting);
            /* What is in the channel is a copy. */
            acltdtDestroyDataItem(item);
            acltdtDestroyDataset(sent);
            numbers[0] = 9;

            printf("received %d\n", acltdtReceiveTensor(channel, received, -1));
            acltdtDataItem *got = acltdtGetDataItem(received, 0);
            float copy[6];
            memcpy(copy, acltdtGetDataAddrFromItem(got), acltdtGetDataSizeFromItem(got));
            acltdtGetDimsFromItem(got, dimensions, 2);
            printf("%s %zu items, %zu dimensions, %ldx%ld, %g..%g\n", acltdtGetDatasetName(received),
                   acltdtGetDatasetSize(received), acltdtGetDimNumFromItem(got), dimensions[0], dimensions[1], copy[0],
                   copy[5]);
            acltdtDestroyDataset(received);

            pthread_t thread;
            void *result;
            pthread_create(&thread, NULL, receive_for_ever, channel);
            acltdtStopChannel(channel);
            pthread_join(thread, &result);
            printf("stopped %d\n", (long)result == QUEUE_EMPTY);
            printf("destroyed %d\n", acltdtDestroyChannel(channel));
            return 0;
        }
    "#;
    let (output, _) = run("channels.c", source, &["acl_tdt_channel"], &[]);
    let expected = "empty 1\nsent 0\nfull 1\nwaiting 1\nreceived 0\nprints 1 items, 2 dimensions, 2x3, 1..6\n\
                    stopped 1\ndestroyed 0\n";
    assert_eq!(success(&output), expected);
}
