// The C++ of the adapter: message queues, and a box of shared memory with a mutex and conditions.
// Nothing is thrown to the caller: null, false and -1 say that it failed.

#include <boost/interprocess/ipc/message_queue.hpp>
#include <boost/interprocess/mapped_region.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <boost/interprocess/sync/interprocess_condition.hpp>
#include <boost/interprocess/sync/interprocess_mutex.hpp>
#include <boost/interprocess/sync/scoped_lock.hpp>
#include <boost/version.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>

namespace ipc = boost::interprocess;

namespace {

// Where one client's message is, and whose turn it is.
struct Place {
    enum Turn : std::uint32_t { client, server };
    Turn turn = client;
    ipc::interprocess_condition answered;
};

struct Head {
    ipc::interprocess_mutex mutex;
    ipc::interprocess_condition asked;
    std::uint32_t open = 0;
};

std::size_t rounded(std::size_t bytes) { return (bytes + 127) / 128 * 128; }

} // namespace

struct Box {
    ipc::mapped_region region;
    std::size_t clients;
    std::size_t payload;
    std::size_t next = 0;

    Head &head() { return *static_cast<Head *>(region.get_address()); }
    char *at(std::size_t index) {
        char *base = static_cast<char *>(region.get_address()) + rounded(sizeof(Head));
        return base + index * (rounded(sizeof(Place)) + rounded(payload));
    }
    Place &place(std::size_t index) { return *reinterpret_cast<Place *>(at(index)); }
    char *bytes(std::size_t index) { return at(index) + rounded(sizeof(Place)); }
};

extern "C" {

int peer_boost_version() { return BOOST_VERSION; }

ipc::message_queue *peer_queue(const char *name, bool create, std::size_t depth, std::size_t bytes) {
    try {
        if (create) return new ipc::message_queue(ipc::create_only, name, depth, bytes);
        return new ipc::message_queue(ipc::open_only, name);
    } catch (...) {
        return nullptr;
    }
}

bool peer_queue_send(ipc::message_queue *queue, const void *bytes, std::size_t len, bool busy) {
    try {
        if (busy) {
            while (!queue->try_send(bytes, len, 0)) {}
        } else {
            queue->send(bytes, len, 0);
        }
        return true;
    } catch (...) {
        return false;
    }
}

std::ptrdiff_t peer_queue_receive(ipc::message_queue *queue, void *bytes, std::size_t max, bool busy) {
    try {
        ipc::message_queue::size_type len = 0;
        unsigned priority = 0;
        if (busy) {
            while (!queue->try_receive(bytes, max, len, priority)) {}
        } else {
            queue->receive(bytes, max, len, priority);
        }
        return static_cast<std::ptrdiff_t>(len);
    } catch (...) {
        return -1;
    }
}

Box *peer_box(const char *name, bool create, std::size_t clients, std::size_t payload) {
    try {
        std::size_t len = rounded(sizeof(Head)) + clients * (rounded(sizeof(Place)) + rounded(payload));
        if (create) {
            ipc::shared_memory_object memory(ipc::create_only, name, ipc::read_write);
            memory.truncate(static_cast<ipc::offset_t>(len));
            Box *box = new Box{ipc::mapped_region(memory, ipc::read_write), clients, payload};
            new (&box->head()) Head();
            for (std::size_t index = 0; index < clients; ++index) new (&box->place(index)) Place();
            return box;
        }
        ipc::shared_memory_object memory(ipc::open_only, name, ipc::read_write);
        return new Box{ipc::mapped_region(memory, ipc::read_write), clients, payload};
    } catch (...) {
        return nullptr;
    }
}

// A client's call.
bool peer_box_call(Box *box, std::size_t index, const void *request, void *reply) {
    try {
        Place &place = box->place(index);
        std::memcpy(box->bytes(index), request, box->payload);
        {
            ipc::scoped_lock<ipc::interprocess_mutex> lock(box->head().mutex);
            place.turn = Place::server;
            box->head().open += 1;
            box->head().asked.notify_one();
            while (place.turn != Place::client) place.answered.wait(lock);
        }
        std::memcpy(reply, box->bytes(index), box->payload);
        return true;
    } catch (...) {
        return false;
    }
}

// The server's next request: whose it is.
std::ptrdiff_t peer_box_next(Box *box, void *request) {
    try {
        std::size_t found = 0;
        {
            ipc::scoped_lock<ipc::interprocess_mutex> lock(box->head().mutex);
            while (box->head().open == 0) box->head().asked.wait(lock);
            box->head().open -= 1;
            do {
                found = box->next;
                box->next = (box->next + 1) % box->clients;
            } while (box->place(found).turn != Place::server);
        }
        std::memcpy(request, box->bytes(found), box->payload);
        return static_cast<std::ptrdiff_t>(found);
    } catch (...) {
        return -1;
    }
}

bool peer_box_answer(Box *box, std::size_t index, const void *reply) {
    try {
        std::memcpy(box->bytes(index), reply, box->payload);
        ipc::scoped_lock<ipc::interprocess_mutex> lock(box->head().mutex);
        box->place(index).turn = Place::client;
        box->place(index).answered.notify_one();
        return true;
    } catch (...) {
        return false;
    }
}

} // extern "C"
